"""The state machine as a table, and the ways through it."""

from __future__ import annotations

import itertools

import pytest

from hipq_django.domain.states import (
    MOVES,
    State,
    steps_between,
)

ALLOWED = {
    ("initial", "running"),
    ("running", "error"),
    ("running", "final"),
    ("error", "retry"),
    ("error", "final"),
    ("retry", "running"),
}


def test_the_moves_are_those_of_the_state_machine() -> None:
    """T3: initial → running → error | final, error → retry | final, retry → running."""
    assert {(old, new) for old, news in MOVES.items() for new in news} == ALLOWED


@pytest.mark.parametrize(("old", "new"), list(itertools.permutations(State, 2)))
def test_a_way_has_allowed_moves_only(old: State, new: State) -> None:
    if old == State.FINAL or new == State.INITIAL:
        with pytest.raises(ValueError, match=f"no transition leads from {old} to {new}"):
            steps_between(old, new)
        return

    way = (old, *steps_between(old, new))

    assert way[-1] == new
    assert all((one, other) in ALLOWED for one, other in itertools.pairwise(way))
