"""What is written of a traceback is what Python writes of it."""

from __future__ import annotations

import traceback
from collections.abc import Callable

import pytest

from hipq_django.domain import tracebacks


def plain() -> None:
    raise ValueError("plain")


def with_a_cause() -> None:
    try:
        plain()
    except ValueError as error:
        raise OSError("the cause is told") from error


def in_a_context() -> None:
    try:
        with_a_cause()
    except OSError:
        raise KeyError("while it was handled")  # noqa: B904 - that is what is shown


def with_notes() -> None:
    error = ValueError("two\nlines")
    error.add_note("a note")
    raise error


def recursive(depth: int = 9) -> None:
    if depth:
        recursive(depth - 1)
    raise ValueError("deep")


def in_a_group() -> None:
    try:
        plain()
    except ValueError as error:
        raise ExceptionGroup("several", [error, OSError("another")]) from error


FAILING: list[Callable[[], object]] = [
    plain, with_a_cause, in_a_context, with_notes, recursive, in_a_group
]  # fmt: skip


@pytest.mark.parametrize("step", FAILING, ids=lambda step: step.__name__)
def test_it_says_what_python_says(step: Callable[[], object]) -> None:
    for _ in range(2):  # the second time what was said of the places is remembered
        with pytest.raises(Exception) as caught:  # noqa: PT011 - of any kind
            step()
        texts = traceback.format_exception(caught.value)
        assert tracebacks.format_exception(caught.value) == "".join(texts)


def test_code_that_comes_and_goes_is_not_taken_for_another() -> None:
    for number in range(100):
        code: dict[str, Callable[[], object]] = {}
        exec(f"def step_{number}():\n    raise ValueError('gone')", code)
        test_it_says_what_python_says(code.popitem()[1])


def test_no_more_texts_than_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracebacks, "MAX_TEXTS", 2)
    monkeypatch.setattr(tracebacks, "_texts", {})

    for step in FAILING:
        test_it_says_what_python_says(step)

    assert len(tracebacks._texts) <= 2
