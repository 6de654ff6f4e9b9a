"""Exceptions that stand for failures whose own exception is gone."""

from __future__ import annotations

import gc
import traceback
import weakref

import pytest

from hipq_django.domain.class_names import class_names
from hipq_django.domain.serialization import error_of, traceback_of
from hipq_django.domain.stand_ins import place_of, stand_in
from hipq_django.exceptions import ErrorAnswer, JobTimeout


class DeclinedError(Exception):
    pass


class Held:
    pass


def decline() -> None:
    try:
        raise OSError("no route")
    except OSError as error:
        raise DeclinedError("no funds") from error


def raised() -> Exception:
    try:
        decline()
    except DeclinedError as error:
        return error
    raise AssertionError


def test_it_has_the_class_the_text_and_the_places_of_what_was_raised() -> None:
    error = raised()
    text = traceback_of(error)

    found = stand_in(class_names(type(error)), error_of(error), place_of(text, "charge", None))

    assert type(found) is not type(error)
    assert (type(found).__name__, type(found).__module__) == ("DeclinedError", __name__)
    assert str(found) == "no funds"
    places = [
        [(s.filename, s.lineno, s.name) for s in traceback.extract_tb(e.__traceback__)]
        for e in (found, error)
    ]
    assert places[0] == places[1]
    assert found.__traceback__ is not None
    assert found.__traceback__.tb_frame.f_globals["__name__"] == __name__


def test_each_is_another_exception() -> None:
    place = place_of("", "charge", decline)

    one, other = (stand_in((), "x", place) for _ in range(2))

    assert one is not other
    assert one.__traceback__ is other.__traceback__


def test_it_keeps_nothing_of_its_callers_alive() -> None:
    seen: list[weakref.ref[Held]] = []

    def make() -> Exception:
        held = Held()
        seen.append(weakref.ref(held))
        return stand_in((), "x", place_of("", f"charge {id(held)}", decline))

    error = make()
    assert error.__traceback__ is not None
    assert error.__traceback__.tb_frame.f_back is None
    gc.collect()
    assert seen[0]() is None


@pytest.mark.parametrize("kind", [JobTimeout, ErrorAnswer])
def test_what_was_not_raised_is_at_the_handler_by_the_name_of_its_type(
    kind: type[Exception],
) -> None:
    found = stand_in(class_names(kind), {"code": 51}, place_of("NONE", "charge", decline))

    assert type(found) is kind
    assert str(found) == '{"code": 51}'
    [step] = traceback.extract_tb(found.__traceback__)
    assert (step.filename, step.name) == (__file__, "charge")
    assert step.lineno == decline.__code__.co_firstlineno


@pytest.mark.parametrize(
    ("error", "text"),
    [("KeyError: 'x'", "'x'"), ("exception KeyError", ""), ("something", "something")],
)
def test_the_class_is_not_said_twice(error: str, text: str) -> None:
    assert str(stand_in(("builtins.KeyError",), error, None)) == text
