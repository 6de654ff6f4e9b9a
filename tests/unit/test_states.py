"""The state machine as a table, and the ways through it."""

from __future__ import annotations

import itertools

import pytest
from django.utils import translation

from hipq_django.domain.states import (
    MOVES,
    STATUS_MEANINGS,
    STATUS_WORDS,
    WAITING,
    AnswerStatus,
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


def test_every_state_says_where_it_leads() -> None:
    assert set(MOVES) == set(State)


def test_a_worker_claims_from_initial_and_retry() -> None:
    assert set(WAITING) == {State.INITIAL, State.RETRY}


@pytest.mark.parametrize(
    ("old", "new", "steps"),
    [
        ("initial", "running", ["running"]),
        ("initial", "final", ["running", "final"]),
        ("initial", "error", ["running", "error"]),
        ("initial", "retry", ["running", "error", "retry"]),
        ("running", "final", ["final"]),
        ("running", "retry", ["error", "retry"]),
        ("error", "final", ["final"]),
        ("error", "running", ["retry", "running"]),
        ("retry", "final", ["running", "final"]),
        ("retry", "error", ["running", "error"]),
    ],
)
def test_the_way_to_a_state_is_the_shortest_one_of_allowed_moves(
    old: str, new: str, steps: list[str]
) -> None:
    assert list(steps_between(State(old), State(new))) == steps


@pytest.mark.parametrize(("old", "new"), list(itertools.permutations(State, 2)))
def test_a_way_has_allowed_moves_only(old: State, new: State) -> None:
    if old == State.FINAL or new == State.INITIAL:
        with pytest.raises(ValueError, match=f"no transition leads from {old} to {new}"):
            steps_between(old, new)
        return

    way = (old, *steps_between(old, new))

    assert way[-1] == new
    assert all((one, other) in ALLOWED for one, other in itertools.pairwise(way))


@pytest.mark.parametrize("language", ["en", "de", "fr"])
@pytest.mark.parametrize("status", AnswerStatus)
def test_the_label_of_an_answers_status_is_its_word_and_its_meaning(
    status: AnswerStatus, language: str
) -> None:
    with translation.override(language):
        word, meaning = map(str.strip, str(status.label).split(":"))

        assert (word, meaning) == (str(STATUS_WORDS[status]), str(STATUS_MEANINGS[status]))
