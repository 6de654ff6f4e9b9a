"""What may be stored, and how errors become text."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, strategies as st

from hipq_django.domain import serialization
from hipq_django.domain.serialization import (
    MAX_DEPTH,
    MAX_ERROR_CHARS,
    error_of,
    storable_text,
    to_json,
    traceback_of,
)
from hipq_django.domain.states import NONE

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
)


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


@given(json_values)
def test_json_is_kept_as_it_is(value: Any) -> None:
    assert to_json(value) == value


def test_what_is_kept_is_a_copy() -> None:
    data = {"items": [1]}

    kept = to_json(data)
    data["items"].append(2)

    assert kept == {"items": [1]}


def circle() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (float("nan"), r"^it is nan, which JSON does not have; use None or text$"),
        ({float("nan"): 1}, "^it has a key that is nan, which JSON"),
        (Decimal(1), "^it is of type Decimal; use None, bool, int, float, str, list and dict$"),
        ([1, {"of": (2, b"bytes")}, b"x"], r"^\[1\]\['of'\]\[1\] is of type bytes; use None"),
        ({"a": {(1, 2): 3}}, r"^\['a'\] has a key of type tuple; use text$"),
        ([{"a": {1: 2, "1": 3}}], r"^\[0\]\['a'\] has the keys 1 and '1', which are"),
        (circle(), "^it is nested too deeply or contains itself$"),
        ("a\0b", "^it holds NUL or a lone surrogate, which is no text$"),
        ({"a": ["x", {"b\0": 1}]}, r"^\['a'\]\[1\] has a key that holds NUL"),
        ("\ud800", "^it holds NUL or a lone surrogate, which is no text$"),
        ({1: [None, float("nan")]}, r"^\[1\]\[1\] is nan"),
        (nested(MAX_DEPTH + 1), "^it is nested deeper than 500 levels$"),
        (nested(100_000), "nested too deeply|deeper than 500 levels"),
        pytest.param(10**5_000, "^it cannot be encoded: Exceeds the limit", id="digits"),
    ],
)
def test_what_a_database_cannot_hold_is_refused_with_the_reason(value: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        to_json(value)


def test_a_backslash_before_u0000_is_no_nul() -> None:
    assert to_json("\\u0000") == "\\u0000"


def test_the_deepest_allowed_value_is_kept() -> None:
    assert to_json(nested(MAX_DEPTH)) == nested(MAX_DEPTH)


# Errors as text


def test_an_exception_is_stored_as_its_class_and_message() -> None:
    assert error_of(ValueError("no such order")) == "ValueError: no such order"


def test_an_exception_without_message_is_never_mistaken_for_no_error() -> None:
    none = type(NONE, (Exception,), {})

    assert error_of(none()) == "exception NONE"


def test_an_exception_whose_message_breaks_is_stored_all_the_same() -> None:
    class BrokenError(Exception):
        def __str__(self) -> str:
            raise OSError("no")

    assert error_of(BrokenError()) == "BrokenError: its message cannot be read: OSError"
    assert "BrokenError" in traceback_of(BrokenError())


def test_text_that_databases_refuse_is_replaced() -> None:
    assert storable_text("a\0b") == "a\N{REPLACEMENT CHARACTER}b"
    assert storable_text("a\ud800b") == "a?b"


def test_a_long_error_is_cut_and_says_so() -> None:
    stored = error_of(ValueError("x" * 20_000))

    assert len(stored) < MAX_ERROR_CHARS + 40
    assert stored.endswith("… (20012 characters)")


def test_of_a_long_traceback_the_end_is_kept() -> None:
    def dive(depth: int) -> None:
        if depth == 0:
            raise ValueError("here" + "x" * 200_000)
        dive(depth - 1)

    with pytest.raises(ValueError, match="here") as caught:
        dive(3)

    assert len(traceback_of(caught.value)) <= 100_000
    assert traceback_of(caught.value).endswith("xxx\n")


def takes_less(markers: Any, default: Any) -> Any:
    """Stand for the private encoder of another Python."""


def says_otherwise(*_: Any) -> Any:
    return lambda value, indent: ["{}"]


@pytest.mark.parametrize("make", [takes_less, says_otherwise, None])
def test_without_pythons_own_encoder_json_is_the_same(make: Any) -> None:
    encode = serialization._encoder(make)

    assert encode({"a": ["é", 1.5]}) == '{"a": ["é", 1.5]}'
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode(float("nan"))
