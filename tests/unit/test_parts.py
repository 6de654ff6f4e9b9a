"""What a job may expect, and when all of it is in."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

import hipq_django as hipq
from hipq_django.domain import parts

names = st.lists(st.sampled_from(["front", "back", "side", "top"]), min_size=1, unique=True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "WAIT_FOR with 0 arguments: give the number"),
        (tuple(f"p{n}" for n in range(1_001)), "with 1,001 arguments"),
        ((0,), r"WAIT_FOR\(0\): give the number of the answers, 1 to 1,000"),
        ((True,), r"WAIT_FOR\(True\)"),
        (("front", "back", "front"), "part 'front' is named twice"),
        (("",), "part '': give text of 1 to 100"),
        (("#1",), "does not begin with '#'"),
        ((["front", "back"],), r"part \['front', 'back'\]"),
    ],
)
def test_what_cannot_be_expected_is_refused(arguments: tuple[Any, ...], said: str) -> None:
    with pytest.raises(hipq.InvalidJobError, match=said):
        hipq.WAIT_FOR(*arguments)


@given(names, names)
def test_named_parts_are_complete_when_none_is_missing(expected: list[str], got: list[str]) -> None:
    is_complete = parts.is_complete(expected, got)

    assert is_complete == ("missing" not in parts.progress_of(expected, got))


@given(names, names)
def test_named_parts_are_collected_in_the_order_expected(
    expected: list[str], got: list[str]
) -> None:
    responses = parts.collected(expected, [(part, part.upper()) for part in got])

    assert responses == {part: part.upper() for part in got}
    assert [part for part in responses if part in expected] == [p for p in expected if p in got]


@pytest.mark.parametrize(
    ("expects", "got", "said"),
    [
        (3, {"#1"}, "answers received: 1 of 3"),
        (["front", "back"], {"front"}, "parts received: 1 of 2, missing: 'back'"),
        (["front", "back"], set(), "parts received: 0 of 2, missing: 'front', 'back'"),
        (["front"], {"front", "old"}, "parts received: 1 of 1"),
    ],
)
def test_it_is_said_what_is_missing(expects: Any, got: set[str], said: str) -> None:
    assert parts.progress_of(expects, got) == said
