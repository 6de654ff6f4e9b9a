"""Finds the task of a path, and declares it as a job type; only what is a task is ever used."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from django.utils.module_loading import import_string

from hipq_django import events
from hipq_django.conf.rules import DEFAULT
from hipq_django.exceptions import ArgumentsError, InvalidJobTypeError
from hipq_django.job_types.declaration import Declaration, checked_values
from hipq_django.job_types.registry import get_declared, register
from hipq_django.tasks_backend.extension import KIND
from hipq_django.tasks_backend.hipq_task import OPTIONS, HipqTask
from hipq_django.tasks_backend.names import InvalidTask, Task
from hipq_django.tasks_backend.running import handler_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hipq_django.domain.drafts import TypeOptions


def find(instance: str, path: str) -> Declaration | None:
    """Return the declaration of the task at a path; None, and say why in the log, without one."""
    try:
        return declare(task_at(path), instance)
    except Exception as error:  # the project's modules are imported, and may raise anything
        events.warning(
            "task_not_found", "its jobs wait; tried again in a minute", job_type=path,
            exception=error,
        )  # fmt: skip
        return None


def task_at(path: str) -> HipqTask:
    """Return the task at a path; raise `InvalidTask` if there is none, or something else."""
    try:
        found = import_string(path)
    except ImportError as error:
        raise InvalidTask(f"There is no task at {path!r}: {error}") from error
    if not isinstance(found, HipqTask):
        what = "a task of another backend" if isinstance(found, Task) else "no task"
        raise InvalidTask(f"{path!r} is {what}: workers find the function by this path.")
    return found


def declare(task: HipqTask, instance: str) -> Declaration:
    """Return the declaration of a task, made where this process has none."""
    path = task.module_path
    known = get_declared(instance, path)
    if known is not None and known.kind != KIND:
        raise InvalidJobTypeError(
            f"job type {path!r} is declared by {known.handler.__qualname__}, which is no task of "
            "django.tasks; rename one of them."
        )
    if isinstance(known, DeclaredTask) and known.name == path and known.task is task:
        return known
    declared = DeclaredTask(
        **checked_values(path, task.queue_name, instance, _type_options(task)),
        handler=handler_of(task),
        kind=KIND,
    )
    declared.task = task
    return register(declared)


class DeclaredTask(Declaration):
    """The declaration of a task of `django.tasks`."""

    task: HipqTask
    checks_data = True

    def checked_data(self, job_data: Any) -> Any:
        """Return the arguments of a new job; raise `ArgumentsError` unless a worker can use them.

        What `enqueue` of the task, and `hipq_django.new` of it, make has been checked.
        """
        given = job_data if isinstance(job_data, dict) else {}
        args, kwargs = given.get("args"), given.get("kwargs")
        if not isinstance(args, list) or not isinstance(kwargs, dict) or given.keys() - _DATA:
            raise ArgumentsError(
                f"{self.name} is a task of django.tasks, whose jobs have data like "
                '{"args": [5], "kwargs": {}}; use its enqueue(…), or hipq_django.new(task, …).'
            )
        bind(self.task, args, kwargs)
        return {"run_after": None, **given}

    def compared(self, job_data: Any) -> Any:
        """Return the arguments by position, where the function takes them so: also named ones."""
        try:
            bound = bind(self.task, job_data["args"], job_data["kwargs"])
        except (TypeError, KeyError):  # what the function cannot take, its worker will refuse
            return job_data
        args = bound.args[1:] if self.task.takes_context else bound.args
        return {"args": args, "kwargs": bound.kwargs}


_DATA = {"args", "kwargs", "run_after"}


def bind(task: HipqTask, args: Sequence[Any], kwargs: Mapping[str, Any]) -> inspect.BoundArguments:
    """Return the arguments as the function takes them; raise `ArgumentsError` if it does not."""
    context, signature = [None] if task.takes_context else [], inspect.signature(task.func)
    try:
        return signature.bind(*context, *args, **kwargs)
    except TypeError as error:
        raise ArgumentsError(
            f"{task.name}{signature} cannot be called with these args and kwargs: {error}."
        ) from error


def check_options(task: HipqTask) -> None:
    """Raise `InvalidJobTypeError` for options with which no worker could declare the task."""
    if options := _type_options(task):
        checked_values(task.module_path, task.queue_name, DEFAULT, options)


def _type_options(task: HipqTask) -> TypeOptions:
    given = {name: getattr(task, name) for name in OPTIONS}
    if task.unique:
        given["unique_on"] = ["args", "kwargs"]
    options: TypeOptions = {n: value for n, value in given.items() if value not in (None, ())}  # type: ignore[assignment]  # by name
    return options
