"""How arguments become JSON, and back."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest

from hipq_django.arguments import Arguments, JsonArguments, PydanticArguments
from hipq_django.conf.rules import arguments_at
from hipq_django.exceptions import ConfigurationError
from hipq_django.models import Queue

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def plain(at: Any, more: Any = None) -> None:
    """Take anything."""


def circle() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize("value", [None, True, 1, 1.5, "text", [1, "a"], {"a": [1]}, (1, 2)])
def test_json_is_taken_as_it_is(value: Any) -> None:
    json = JsonArguments()

    assert json.dump(plain, {"at": value}) == {"at": value}
    assert json.load(plain, {"at": value}) == {"at": value}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (Queue(pk=3), "argument at is a Queue: give at.pk, the worker reads the row anew."),
        (
            NOON,
            "argument at is a datetime: give at.isoformat(), or set ARGUMENTS to "
            "PydanticArguments.",
        ),
        (NOON.date(), "argument at is a date: give at.isoformat()"),
        (
            {1, 2},
            "argument at is not JSON: it is of type set; use None, bool, int, float, str, list and "
            "dict; or set ARGUMENTS to PydanticArguments.",
        ),
        (
            float("nan"),
            "argument at is not JSON: it is nan, which JSON does not have; use None or text.",
        ),
        (
            {"when": ["now", NOON]},
            "argument at['when'][1] is a datetime: give at['when'][1].isoformat(), or set "
            "ARGUMENTS to PydanticArguments.",
        ),
        (
            [Queue(pk=3)],
            "argument at[0] is a Queue: give at[0].pk, the worker reads the row anew.",
        ),
        ([{"net": Decimal(1)}], "argument at[0]['net'] is not JSON: it is of type Decimal; use"),
        ({"a": {(1, 2): 3}}, "argument at['a'] is not JSON: it has a key of type tuple; use text."),
        (("a", "b\0"), "argument at[1] is not JSON: it holds the NUL character, which"),
        (circle(), "argument at is not JSON: it is nested too deeply or contains itself."),
    ],
)
def test_what_is_not_json_is_refused_with_what_to_give(value: Any, said: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the text is compared
        JsonArguments().dump(plain, {"at": value})

    assert str(raised.value).startswith(said)


class Colour(Enum):
    RED = "red"


@dataclass
class Address:
    street: str
    number: int = 1


def typed(  # noqa: PLR0913, PLR0917 - one of each kind
    at: datetime,
    day: date,
    price: Decimal,
    token: UUID,
    colour: Colour,
    to: Address,
    copies: list[int] | None = None,
    anything: Any = None,
    ratio: float = 1.0,
    **more: int,
) -> None:
    """Take what JSON does not have."""


GIVEN = {
    "at": NOON,
    "day": NOON.date(),
    "price": Decimal("1.10"),
    "token": UUID(int=7),
    "colour": Colour.RED,
    "to": Address("Main Street"),
    "anything": {"a": 1},
}


@pytest.fixture
def pydantic() -> Arguments:
    pytest.importorskip("pydantic", reason="needs the extra pydantic")
    return PydanticArguments()


def test_without_pydantic_the_package_to_install_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", None)

    arguments_at.cache_clear()

    with pytest.raises(ConfigurationError, match=r"pip install 'hipq-django\[pydantic\]'"):
        arguments_at("hipq_django.arguments.PydanticArguments")


def test_pydantic_stores_json_and_gives_back_what_was_given(pydantic: Arguments) -> None:
    stored = pydantic.dump(typed, dict(GIVEN))

    assert stored["at"] == "2026-11-22T12:00:00Z"
    assert stored["price"] == "1.10"
    assert stored["to"] == {"street": "Main Street", "number": 1}
    assert "copies" not in stored
    assert JsonArguments().dump(typed, stored) == stored
    assert pydantic.load(typed, stored) == GIVEN


def test_pydantic_says_which_argument_is_wrong(pydantic: Arguments) -> None:
    with pytest.raises(ValueError, match=r"^argument at: .*datetime.*, not 'tomorrow'\.$"):
        pydantic.dump(typed, GIVEN | {"at": "tomorrow"})
    with pytest.raises(ValueError, match=r"^argument to\.number: "):
        pydantic.dump(typed, GIVEN | {"to": {"street": "a", "number": "b"}})


@pytest.mark.parametrize(
    ("anything", "place"),
    [(object(), ""), ([1, {"of": object()}], "[1]['of']"), ({"a": (NOON, object())}, "['a'][1]")],
)
def test_pydantic_says_of_what_it_cannot_make_json(
    pydantic: Arguments, anything: Any, place: str
) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the text is compared
        pydantic.dump(typed, GIVEN | {"anything": anything})

    assert str(raised.value) == (
        f"argument anything{place} is of type object, of which pydantic cannot make JSON; give "
        "JSON, or annotate the argument with a type that says how."
    )


@pytest.mark.parametrize(
    ("number", "said"), [(float("nan"), "nan"), (float("-inf"), "-inf")], ids=["nan", "-inf"]
)
@pytest.mark.parametrize(
    ("given", "place"),
    [
        (lambda number: {"ratio": number}, "ratio"),
        (lambda number: {"anything": number}, "anything"),
        (lambda number: {"anything": [1, {"of": (number,)}]}, "anything[1]['of'][0]"),
    ],
    ids=["float", "any", "within any"],
)
def test_pydantic_stores_no_null_instead_of_a_number_that_json_lacks(
    pydantic: Arguments, given: Any, place: str, number: float, said: str
) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the text is compared
        pydantic.dump(typed, GIVEN | given(number))

    assert str(raised.value) == (
        f"argument {place} is not JSON: it is {said}, which JSON does not have; use None or text."
    )


def test_arguments_of_any_name_are_kept(pydantic: Arguments) -> None:
    assert pydantic.load(typed, pydantic.dump(typed, GIVEN | {"extra": 3}))["extra"] == 3


def test_an_annotation_that_cannot_be_read_is_told(pydantic: Arguments) -> None:
    def unknown(at: Unknown) -> None:  # type: ignore[name-defined]  # noqa: F821 - what is refused
        """Name what is not there."""

    with pytest.raises(TypeError, match="an annotation cannot be read: name 'Unknown'"):
        pydantic.dump(unknown, {"at": 1})


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("hipq_django.arguments.Jason", "cannot be imported"),
        ("builtins.dict", "name a class with the methods dump and load"),
        ("hipq_django.conf.rules.checked_limit", "cannot be made"),
    ],
)
def test_a_converter_that_cannot_be_used_is_refused(path: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        arguments_at(path)
