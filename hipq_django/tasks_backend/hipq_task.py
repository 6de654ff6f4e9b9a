"""The task of the backend: Django's, with the options of a job type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.utils.module_loading import import_string

from hipq_django.domain.retries import RetryPolicy
from hipq_django.domain.uniqueness import Scope
from hipq_django.domain.windows import TimeWindow
from hipq_django.tasks_backend import names
from hipq_django.tasks_backend.names import Task, TaskResult

OF_THE_CODE = ("retry", "unique", "aliases")
"""What the task at the path says, when a job runs; no single job can have others."""

OPTIONS = ("timeout", "throttle_factor", "time_windows", *OF_THE_CODE)


@dataclass(frozen=True, slots=True, kw_only=True)
class HipqTask(Task):  # type: ignore[type-arg]  # its class is not generic at run time
    """A task of `django.tasks` with options that only this backend knows.

    They are those of `hipq_django.task`; the decorator takes them, and `using` does.
    """

    retry: RetryPolicy | None = None
    timeout: float | None = None
    throttle_factor: float | Decimal | None = None
    time_windows: Sequence[str | TimeWindow] | None = None
    unique: Scope | bool | None = None
    aliases: Sequence[str] = ()
    shard_key: str | None = None
    delay: timedelta | None = None
    """How long after its enqueue a job may run; `using` takes it as `run_after`."""

    def using(
        self,
        *,
        priority: int | None = None,
        queue_name: str | None = None,
        run_after: datetime | timedelta | None = None,
        backend: str | None = None,
        **options: Any,
    ) -> HipqTask:
        """Return a task with other values; `run_after` may be a timedelta from the enqueue.

        `options` are those of this class. `retry`, `unique` and `aliases` count for the task that
        is found under its path, so they belong to the decorator, or to that task.
        """
        given = {"priority": priority, "queue_name": queue_name, "backend": backend, **options}
        values = {name: value for name, value in given.items() if value is not None}
        if isinstance(run_after, timedelta):
            values |= {"run_after": None, "delay": run_after}
        elif run_after is not None:
            values |= {"run_after": run_after, "delay": None}
        return replace(self, **values)

    def get_result(self, result_id: str) -> TaskResult[Any, Any]:
        """Return a result of this task by its id; also one that was enqueued under an alias."""
        self._make_aliases_known()
        return Task.get_result(self, result_id)  # as slots are added, super() names another class

    async def aget_result(self, result_id: str) -> TaskResult[Any, Any]:
        """Return a result of this task by its id, in async code."""
        self._make_aliases_known()
        return await Task.aget_result(self, result_id)

    def _make_aliases_known(self) -> None:
        if self.aliases:
            backend: Any = self.get_backend()
            backend.make_known(self)

    def __reduce__(self) -> tuple[Any, ...]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return _restored, (type(self), self.module_path, values | {"func": None})


def task(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Declare a task as Django's decorator does, on Django 6.0 with the options of `HipqTask`, too.

    Django's own takes those of a backend since 6.1.
    """
    own = {name: options.pop(name) for name in OPTIONS if name in options}

    def declare(function: Callable[..., Any]) -> Any:
        declared: Any = names.task(**options)(function)
        return replace(declared, **own) if own else declared

    return declare if function is None else declare(function)


def _restored(kind: type[HipqTask], path: str, values: dict[str, Any]) -> HipqTask:
    """Return a pickled task; its function is found by its path."""
    try:
        found = import_string(path)
        return kind(**values | {"func": found.func})
    except (ImportError, AttributeError) as error:
        raise ValueError(f"Expected {path!r} to point to a Task instance.") from error
