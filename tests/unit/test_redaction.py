"""Sensitive fields and their values, masked wherever people read them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given, strategies as st

from hipq_django.domain.redaction import Redactor, checked_fields
from hipq_django.domain.serialization import error_of, traceback_of
from hipq_django.domain.tokens import MASK
from hipq_django.exceptions import InvalidJobError
from tests.memory import deep, peak_of

CARD = "4111 1111 1111 1111"

texts = st.text(max_size=12)
values: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


def mask(value: Any, *fields: str) -> Any:
    return Redactor(fields).knowing(value).mask(value)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"card": CARD, "order": 42}, {"card": MASK, "order": 42}),
        ({"Card": CARD}, {"Card": MASK}),
        ({"a": [{"b": {"card": CARD}}]}, {"a": [{"b": {"card": MASK}}]}),
        ({"card": {"number": CARD, "year": 2030}}, {"card": MASK}),
        ({"card": [CARD]}, {"card": MASK}),
        ({"card": None}, {"card": MASK}),
    ],
)
def test_a_name_masks_that_key_at_any_depth(value: Any, shown: Any) -> None:
    assert mask(value, "card") == shown


def test_a_dotted_name_masks_the_key_directly_below_the_other_one() -> None:
    value = {
        "iban": "a-public-one",
        "customer": {"iban": "DE02", "name": "Ada", "bank": {"iban": "b-public-one"}},
        "orders": [{"customer": [{"iban": "FR76"}]}],
        "customer.iban": "GB33",
    }

    assert mask(value, "customer.iban") == {
        "iban": "a-public-one",
        "customer": {"iban": MASK, "name": "Ada", "bank": {"iban": "b-public-one"}},
        "orders": [{"customer": [{"iban": MASK}]}],
        "customer.iban": MASK,
    }


def test_a_value_that_is_known_is_masked_in_other_fields_too() -> None:
    value = {"card": CARD, "note": f"please charge {CARD} today"}

    assert mask(value, "card")["note"] == f"please charge {MASK} today"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"card": CARD, "by": {CARD: 1}}, {"card": MASK, "by": {MASK: 1}}),
        ({CARD: {"card": CARD}}, {MASK: {"card": MASK}}),
        ({"card": 4711, "n": [4711, 47110]}, {"card": MASK, "n": [MASK, 47110]}),
        ({"card": 4711, "by": {"4711": 1}}, {"card": MASK, "by": {MASK: 1}}),
        ({"card": 12, "n": 12, "by": {"12": 12}}, {"card": MASK, "n": 12, "by": {"12": 12}}),
        ({"card": [1, True], "n": [1, True]}, {"card": MASK, "n": [1, True]}),
        (
            {"card": ["4111", "5500"], "by": {"5500": 5, MASK: 0, "of 4111": 4, "x": 1}},
            {"card": MASK, "by": {MASK: 5, f"{MASK} 2": 0, f"of {MASK}": 4, "x": 1}},
        ),
        ({"card": "cards", "cards": {"card": 1}}, {"card": MASK, MASK: {"card": MASK}}),
    ],
)
def test_a_value_that_is_known_is_masked_as_a_key_and_as_a_number(value: Any, shown: Any) -> None:
    before = json.dumps(value)

    masked = mask(value, "card")

    assert masked == shown
    assert json.dumps(value) == before


def test_what_a_field_has_is_masked_by_its_name_whatever_that_is() -> None:
    redactor = Redactor(("card",)).knowing({"card": "4711"})

    assert replace(redactor, key="card").mask([1]) == MASK
    assert replace(redactor, key="4711").mask({"card": 1, "n": 2}) == {"card": MASK, "n": 2}
    assert Redactor(key="card").mask([1]) == [1]


@given(values)
def test_what_is_not_sensitive_stays_and_the_value_is_not_changed(value: Any) -> None:
    before = json.dumps(value)

    assert mask(value, "no such field") == value
    assert json.dumps(value) == before


@given(st.text(min_size=1, max_size=30).filter(str.strip).filter(lambda text: MASK[0] not in text))
def test_a_known_value_is_found_however_it_is_spelled(secret: str) -> None:
    secret = secret.strip() * 6  # long enough to be looked for anywhere
    redactor = Redactor(("card",)).knowing({"card": secret})

    for spelled in (
        secret,
        repr(secret)[1:-1],
        json.dumps(secret)[1:-1],
        quote(secret, safe="", errors="replace"),
    ):
        assert spelled not in redactor.mask_text(f"before{spelled}after")


def test_a_known_value_is_found_in_an_address() -> None:
    redactor = Redactor(("card",)).knowing({"card": CARD})

    address = f"https://bank.example/?{urlencode({'card': CARD})}"

    assert redactor.mask_text(address) == f"https://bank.example/?card={MASK}"


def test_a_short_value_is_found_as_a_whole_word_only_and_a_very_short_one_is_not() -> None:
    redactor = Redactor(("cvv", "day")).knowing({"cvv": "123", "day": "1"})

    assert redactor.mask_text("cvv 123, 12345, line 1") == f"cvv {MASK}, 12345, line 1"


def test_data_as_deep_as_can_be_stored_are_masked() -> None:
    value: Any = {"card": "4100"}
    for _ in range(499):
        value = [value]

    shown = Redactor(("card",)).mask(value)

    for _ in range(499):
        shown = shown[0]
    assert shown == {"card": MASK}


def test_deep_data_are_masked_in_little_memory() -> None:
    value = deep({str(number): number for number in range(2_000)})

    assert peak_of(lambda: mask(value, "card")) < 20_000_000


def test_data_that_contains_itself_is_walked_once() -> None:
    data: dict[str, Any] = {"card": CARD}
    data["again"] = [data]

    assert Redactor(("card",)).knowing(data).mask_text(CARD) == MASK


@pytest.mark.parametrize("text_of", [error_of, traceback_of])
@pytest.mark.parametrize("shift", [0, 8, 20, 40])
def test_no_part_of_a_value_is_left_where_a_text_was_cut(text_of: Any, shift: int) -> None:
    """At the end of an error, and at the beginning of a traceback."""
    redactor = Redactor(("card",)).knowing({"card": "4111-1111-1111-2222"})
    size = 10_000 if text_of is error_of else 100_000
    error = ValueError(f"{'x' * (9_980 - shift)}4111-1111-1111-2222{'y' * (size - shift)}")

    shown = redactor.mask_text(text_of(error))

    assert len(text_of(error)) < size + 100
    assert not re.search(r"411|111|222", shown)
    assert shown.count("x") > 9_000 or shown.count("y") > 90_000


@pytest.mark.parametrize("names", ["card", ["a..b"], [7]])
def test_what_are_no_names_of_fields_is_refused(names: Any) -> None:
    with pytest.raises(InvalidJobError, match=r'give a list of names such as \["card"'):
        checked_fields(names)
