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


def without_its_context() -> None:
    try:
        plain()
    except ValueError:
        raise KeyError("nothing of it is told") from None


def with_notes() -> None:
    error = ValueError("two\nlines")
    error.add_note("a note")
    raise error


def with_a_wrong_name() -> None:
    something = 1
    print(somethin, something)  # type: ignore[name-defined]  # noqa: F821, T201 - it raises


def recursive(depth: int = 9) -> None:
    if depth:
        recursive(depth - 1)
    raise ValueError("deep")


def recursive_in_one_line(depth: int = 9) -> object:
    if depth:
        return recursive_in_one_line(depth - 1) if depth % 2 else again(depth - 1)
    raise ValueError("deep")


again = recursive_in_one_line


def in_a_group() -> None:
    try:
        plain()
    except ValueError as error:
        raise ExceptionGroup("several", [error, OSError("another")]) from error


def in_a_circle() -> None:
    first, second = ValueError("first"), OSError("second")
    first.__cause__, second.__cause__ = second, first
    raise first


def in_compiled_code() -> None:
    exec("1 / 0")


def in_wrong_code() -> None:
    compile("1 +", "<text>", "exec")


FAILING: list[Callable[[], object]] = [
    plain, with_a_cause, in_a_context, without_its_context, with_notes, with_a_wrong_name,
    recursive, recursive_in_one_line, in_a_group, in_a_circle, in_compiled_code, in_wrong_code,
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


def test_an_exception_that_was_never_raised_has_no_places() -> None:
    assert tracebacks.format_exception(ValueError("never")) == "ValueError: never\n"


def test_no_more_places_than_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracebacks, "MAX_PLACES", 2)
    monkeypatch.setattr(tracebacks, "_texts", {})

    for step in FAILING:
        test_it_says_what_python_says(step)

    assert len(tracebacks._texts) <= 2
