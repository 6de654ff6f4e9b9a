"""Stored values come back where an edited value still has their masks, and nowhere else."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from hipq_django.domain.redaction import Redactor
from hipq_django.domain.unmasking import unmask
from hipq_django.exceptions import InvalidJobError

TO = [{"card": 1, "name": "a"}, {"card": 2, "name": "b"}, {"card": 3, "name": "b"}]
STORED = {"card": "4711", "to": TO}
A, B = {"card": "•••", "name": "a"}, {"card": "•••", "name": "b"}
SHOWN = {"card": "•••", "to": [A, B, B]}


def unmasked(edited: Any) -> Any:
    return unmask(edited, STORED, Redactor(("card",)).mask(STORED))


@pytest.mark.parametrize(
    ("edited", "stored"),
    [
        (SHOWN, STORED),
        ({"card": "•••"}, {"card": "4711"}),
        ({"to": [A, B | {"name": "c"}, B]}, {"to": [TO[0], TO[1] | {"name": "c"}, TO[2]]}),
        ({"to": [{"card": 5}, B, {"new": 1}]}, {"to": [{"card": 5}, TO[1], {"new": 1}]}),
        ("text", "text"),
    ],
    ids=["all", "less", "edited in a list", "replaced in a list", "another kind"],
)
def test_a_mask_that_is_where_it_was_stands_for_the_stored_value(edited: Any, stored: Any) -> None:
    assert unmasked(edited) == stored


@pytest.mark.parametrize(
    "edited",
    [
        {"card": ["•••"]},
        {"cards": "•••"},
        {"to": [A, B]},
        {"to": [B, A, B]},
        {"to": [B, {"name": "new"}, B]},
        {"to": A},
        "•••",
    ],
    ids=["deeper", "renamed", "shorter list", "swapped", "moved up", "no list", "only the mask"],
)
def test_a_mask_in_another_place_is_refused(edited: Any) -> None:
    """Else a value would get into the hands, or the place, of another."""
    with pytest.raises(InvalidJobError, match="leave it where it is, or replace it"):
        unmasked(edited)


def test_what_is_nested_too_deeply_to_be_compared_is_refused() -> None:
    stored: Any = {"a": 1}
    for _ in range(499):
        stored = {"a": stored}
    edited = json.loads(json.dumps(stored).replace("1", "2"))
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(300)  # as if the stack of a request was there already
    try:
        with pytest.raises(InvalidJobError, match="nested too deeply"):
            unmask(edited, stored, stored)
    finally:
        sys.setrecursionlimit(limit)


BY: Any = {"card": ["4711", "4712"], "by": {"4711": {"card": 1}, "4712": {"n": 2}, "other": 3}}
SHOWN_BY: Any = {"•••": {"card": "•••"}, "••• 2": {"n": 2}, "other": 3}


@pytest.mark.parametrize(
    ("edited", "stored"),
    [
        (SHOWN_BY, BY["by"]),
        ({**SHOWN_BY, "other": 4}, {**BY["by"], "other": 4}),
        ({"••• 2": {"n": 5}}, {"4712": {"n": 5}}),
        ({"•••": {"card": "•••", "n": 1}, "new": 4}, {"4711": {"card": 1, "n": 1}, "new": 4}),
    ],
    ids=["all", "beside", "below", "added"],
)
def test_a_masked_key_stands_for_the_stored_one(edited: Any, stored: Any) -> None:
    shown = Redactor(("card",)).mask(BY)
    assert shown["by"] == SHOWN_BY

    assert unmask({**shown, "by": edited}, BY, shown) == {**BY, "by": stored}


@pytest.mark.parametrize("by", [{"••• 3": 1}, {"x•••": 1}, {"other": {"•••": 1}}])
def test_a_masked_key_in_another_place_is_refused(by: Any) -> None:
    with pytest.raises(InvalidJobError, match="leave it where it is, or replace it"):
        unmask({"by": by}, BY, Redactor(("card",)).mask(BY))


def test_a_stored_key_that_has_the_characters_of_the_mask_may_stay() -> None:
    stored = {"•••": {"n": 1}, "m": 2}

    assert unmask({"•••": {"n": 3}, "m": 4}, stored, stored) == {"•••": {"n": 3}, "m": 4}
