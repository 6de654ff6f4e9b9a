"""Tasks of `django.tasks`, for whichever backend the setting TASKS names."""

from __future__ import annotations

import asyncio
from typing import Any

from django.db import transaction

import hipq_django as hipq
from hipq_django.tasks_backend import task
from hipq_django.tasks_backend.names import TaskContext

CALLS: list[Any] = []
"""What the tasks were called with."""


@task
def add(a: int, b: int = 0) -> int:
    CALLS.append((a, b))
    return a + b


@task
async def add_later(a: int, b: int = 0) -> int:
    await asyncio.sleep(0)
    return a + b


@task
def nothing() -> None:
    return None


@task
def tell(value: Any) -> Any:
    return value


@task
def fail(text: str = "no") -> None:
    raise ValueError(text)


@task
def leave() -> None:
    raise SystemExit(3)


@task(takes_context=True)
def attempt(context: TaskContext[Any, Any]) -> dict[str, Any]:
    return {"attempt": context.attempt, "id": context.task_result.id}


@task
def odd() -> Any:
    return object()


@task
def no_number() -> float:
    return float("nan")


task_with_options: Any = task
"""Django's types know no options of a backend."""


@task_with_options(  # type: ignore[untyped-decorator]  # see above
    retry=hipq.Fixed(0, max_attempts=3), unique="live", timeout=60
)
def stubborn(number: int) -> None:
    CALLS.append(number)
    raise OSError(f"no {number}")


@task
def put_back() -> None:
    raise hipq.Snooze(60)


@task
def ask() -> Any:
    return hipq.WAIT


@task
def begin_and_forget() -> str:
    transaction.atomic().__enter__()
    return "done"
