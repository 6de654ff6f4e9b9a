"""What a task's function takes: binding, checking what is stored, and the text of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, strategies as st

from hipq_django.domain.signature import Signature
from hipq_django.exceptions import ArgumentsError, InvalidJobTypeError

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def send(invoice_id: int, copy_to: list[str] | None = None, *, urgent: bool = False) -> None:
    """Send an invoice."""


def with_all(job: Any, invoice_id: int, inputs: Any = (), **more: Any) -> None:
    """Take what the worker fills in, and any other argument."""


def without_any() -> None:
    """Take nothing."""


def signature(function: Any = send) -> Signature:
    return Signature(f"shop.jobs.{function.__name__}", function)


@pytest.mark.parametrize(
    ("args", "kwargs", "said"),
    [
        ((), {}, "send: argument invoice_id is missing."),
        (
            (7,),
            {"invoce_id": 7},
            "send takes no argument 'invoce_id', did you mean 'invoice_id'?",
        ),
        ((7, None, True), {}, "send takes at most 2 arguments by position, and 3 are given"),
        ((7,), {"invoice_id": 7}, "send: argument invoice_id is given twice."),
    ],
)
def test_what_does_not_fit_is_refused_by_name(args: Any, kwargs: Any, said: str) -> None:
    with pytest.raises(ArgumentsError) as raised:
        signature().bind(args, kwargs)

    assert str(raised.value).startswith(said)
    assert isinstance(raised.value, TypeError)


def test_what_the_worker_fills_in_is_no_argument() -> None:
    taken = signature(with_all)

    assert taken.filled_in == ("job", "inputs")
    assert taken.bind((7,), {"other": 1}) == {"invoice_id": 7, "other": 1}
    with pytest.raises(ArgumentsError, match="send: job is no argument"):
        signature().bind((7,), {"job": None})


@pytest.mark.parametrize(
    ("stored", "problem"),
    [
        ({"invoice_id": 7}, ""),
        ({}, "send: argument invoice_id is missing."),
        ({"invoice_id": 7, "old": 1}, "send takes no argument 'old'"),
        ([7], "send: the data of its job is a list; give a dict of its arguments by name."),
    ],
)
def test_stored_arguments_are_held_against_the_function(stored: Any, problem: str) -> None:
    assert signature().misfit(stored).startswith(problem)
    assert bool(signature().misfit(stored)) is bool(problem)


def positional_only(invoice_id: int, /) -> None:
    """Cannot be called by name."""


def any_number(*invoices: int) -> None:
    """Cannot be called by name either."""


@pytest.mark.parametrize("function", [positional_only, any_number])
def test_arguments_without_a_name_are_refused(function: Any) -> None:
    with pytest.raises(InvalidJobTypeError, match="arguments are stored by name"):
        signature(function)


def test_a_function_whose_signature_python_does_not_know_is_refused() -> None:
    said = "task 'shop.largest': the signature of <built-in function max> cannot be read; write a"
    with pytest.raises(InvalidJobTypeError, match=said):
        Signature("shop.largest", max)


def test_the_text_says_what_is_taken_and_nothing_that_changes_from_start_to_start() -> None:
    assert signature().text == (
        "(invoice_id: int, copy_to: list[str] | None = …, *, urgent: bool = …)"
    )
    assert signature(with_all).text == "(invoice_id: int, **more)"
    assert signature(without_any).text == "()"


NAMES = st.sampled_from(["invoice_id", "copy_to", "urgent", "job", "other"])


@given(st.lists(st.integers(), max_size=4), st.dictionaries(NAMES, st.integers()))
def test_what_is_bound_is_what_python_would_have_called_with(
    args: list[int], kwargs: dict[str, int]
) -> None:
    def called(invoice_id: Any, copy_to: Any = None, *, urgent: Any = False) -> dict[str, Any]:
        return {"invoice_id": invoice_id, "copy_to": copy_to, "urgent": urgent}

    taken = Signature("called", called)
    try:
        expected = called(*args, **kwargs)
    except TypeError:
        with pytest.raises(ArgumentsError):
            taken.bind(tuple(args), dict(kwargs))
        return

    bound = taken.bind(tuple(args), dict(kwargs))

    assert called(**bound) == expected
    assert taken.misfit(bound) == ""
    assert len(bound) == len(args) + len(kwargs)
