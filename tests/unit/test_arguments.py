"""How arguments become JSON, and back."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from types import SimpleNamespace
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from django.db import transaction

from hipq_django.arguments import Arguments, JsonArguments, PydanticArguments
from hipq_django.conf.rules import arguments_at
from hipq_django.exceptions import ConfigurationError
from hipq_django.models import Queue

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def plain(at: Any, more: Any = None) -> None:
    """Take anything."""


class Colour(Enum):
    RED = "red"


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
            [{"net": Decimal(1)}],
            "argument at[0]['net'] is a Decimal: give str(at[0]['net']), or set ARGUMENTS to "
            "PydanticArguments.",
        ),
        (Colour.RED, "argument at is a Colour: give at.value, or set ARGUMENTS"),
        ({"a": {(1, 2): 3}}, "argument at['a'] is not JSON: it has a key of type tuple; use text."),
        (("a", "b\0"), "argument at[1] is not JSON: it holds NUL or a lone surrogate"),
    ],
)
def test_what_is_not_json_is_refused_with_what_to_give(value: Any, said: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the text is compared
        JsonArguments().dump(plain, {"at": value})

    assert str(raised.value).startswith(said)


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
    **more: Any,
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


def test_pydantic_reads_annotations_of_a_decorated_function(pydantic: Arguments) -> None:
    """They are text here, with names of this module, and the decorator is of another one."""
    assert pydantic.dump(transaction.atomic(typed), dict(GIVEN)) == pydantic.dump(typed, GIVEN)


def test_pydantic_says_which_argument_is_wrong(pydantic: Arguments) -> None:
    with pytest.raises(ValueError, match=r"^argument at: .*datetime.*, not 'tomorrow'\.$"):
        pydantic.dump(typed, GIVEN | {"at": "tomorrow"})
    with pytest.raises(ValueError, match=r"^argument to\.number: "):
        pydantic.dump(typed, GIVEN | {"to": {"street": "a", "number": "b"}})


def test_pydantic_says_of_what_it_cannot_make_json(pydantic: Arguments) -> None:
    with pytest.raises(ValueError, match=r"Unable to serialize unknown type: .*'object'"):
        pydantic.dump(typed, GIVEN | {"anything": object()})


def taking(kind: Any) -> Any:
    """Return a function whose argument v has this type."""

    def function(*, v: Any) -> None:
        """Take a value."""

    function.__annotations__["v"] = kind
    return function


def models() -> Any:
    """Return models of pydantic, which not every environment has."""
    from pydantic import BaseModel, Field, SecretStr

    class Aliased(BaseModel):
        street: str = Field(alias="Street")

    class Excluding(BaseModel):
        street: str
        note: str = Field("", exclude=True)

    class Secret(BaseModel):
        token: SecretStr

    class ReadOtherwise(BaseModel):
        street: str = Field(validation_alias="Street")

    return SimpleNamespace(**{n: k for n, k in locals().items() if isinstance(k, type)})


IN_THE_REPEATED_HOUR = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Paris"), fold=1)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (lambda m: m.Aliased, lambda m: m.Aliased(Street="Long Lane")),
        (lambda m: m.Excluding, lambda m: m.Excluding(street="Long Lane")),
        (lambda _: datetime, lambda _: IN_THE_REPEATED_HOUR),
        (lambda _: dict[str, tuple[int, ...]], lambda _: {"a": (1, 2)}),
        (lambda _: Any, lambda _: {"a": (1, [2])}),
        (lambda _: Iterable[int], lambda _: [1, 2]),
    ],
    ids=["aliased", "excluding", "repeated hour", "tuples", "tuples in any", "iterable"],
)
def test_pydantic_reads_its_own_json_again(pydantic: Arguments, kind: Any, value: Any) -> None:
    known = models()
    function = taking(kind(known))

    stored = pydantic.dump(function, {"v": value(known)})

    assert pydantic.dump(function, pydantic.load(function, stored)) == stored


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        (lambda m: m.Excluding, lambda m: m.Excluding(street="a", note="abc"), "v is a Excluding"),
        (lambda m: m.Secret, lambda m: m.Secret(token="abc"), "v is a Secret"),
        (lambda m: m.ReadOtherwise, lambda m: m.ReadOtherwise(Street="abc"), "v.Street: Field req"),
        (lambda _: Any, lambda _: {"at": [NOON]}, "v is a dict"),
        (lambda _: Any, lambda _: {1: "a"}, "v is a dict"),
        (lambda _: Any, lambda _: float("nan"), "v is a float"),
    ],
    ids=["excluded", "secret", "read", "date in any", "keys", "nan"],
)
def test_what_pydantic_would_lose_is_refused(
    pydantic: Arguments, kind: Any, value: Any, said: str
) -> None:
    known = models()

    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the text is compared
        pydantic.dump(taking(kind(known)), {"v": value(known)})

    assert str(raised.value).startswith(f"argument {said}")
    assert "abc" not in str(raised.value)


@pytest.mark.parametrize("kind", [Iterator[int], Queue], ids=["iterator", "model of Django"])
def test_an_annotation_that_pydantic_does_not_know_is_told(pydantic: Arguments, kind: Any) -> None:
    name = kind.__name__
    with pytest.raises(TypeError, match=rf"^an annotation cannot be used: .*{name}[^\n]*\.$"):
        pydantic.dump(taking(kind), {"v": 1})


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
        ("hipq_django.conf.rules.throttler_at", "cannot be made"),
    ],
)
def test_a_converter_that_cannot_be_used_is_refused(path: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        arguments_at(path)


def test_an_argument_that_contains_itself_is_refused(pydantic: Arguments) -> None:
    circle: list[Any] = []
    circle.append(circle)

    def take(v: Any) -> None:
        """Never called."""

    with pytest.raises(ValueError, match=r"(?i)circular"):
        pydantic.dump(take, {"v": circle})
