"""Which job type a test means: by its name, or by what the code has made of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from hipq_django.conf.instances import get_instance
from hipq_django.conf.rules import DEFAULT
from hipq_django.exceptions import InvalidJobTypeError, nearest_name
from hipq_django.job_types.declaration import Declaration
from hipq_django.job_types.registry import find_declared, get_declared, known_names
from hipq_django.models import JobType
from hipq_django.tasks_backend import configured


class TaskOfDjango(Protocol):
    """A task of `django.tasks`."""

    @property
    def module_path(self) -> str:
        """Its path, which is the name of its job type."""

    def get_backend(self) -> Any:
        """Return the backend of its jobs."""


Asked = str | Declaration | TaskOfDjango
"""A job type by its name, by what `task` or `job_type` has returned, or as a task of Django."""


def name_of(verb: str, job_type: Asked, instance: str) -> tuple[str, str]:
    """Return the name of a job type, and its instance; raise `InvalidJobTypeError` for what is
    none."""
    if isinstance(job_type, str):
        return job_type, instance
    name, own = _of_object(job_type)
    if own is None:
        raise InvalidJobTypeError(
            f"{verb}: {job_type!r:.200} is no job type; give its name, or what hipq_django.task or "
            "job_type has returned."
        )
    if instance not in (DEFAULT, own):
        raise InvalidJobTypeError(
            f"{verb}: job type {name!r} is of instance {own!r}, not {instance!r}; leave instance= "
            "out."
        )
    return name, own


def _of_object(job_type: Any) -> tuple[str, str | None]:
    if isinstance(job_type, Declaration):
        return job_type.name, job_type.instance
    if not hasattr(job_type, "module_path"):
        return "", None
    backend = job_type.get_backend()
    return job_type.module_path, getattr(backend, "instance", None)


def check_known(
    verb: str, name: str, instance: str, stored: Callable[[str], Iterable[str]] | None = None
) -> None:
    """Raise `InvalidJobTypeError` for a name that no code declares and no row has.

    Not where STRICT is False: there jobs may be for the code of others. `stored` returns the names
    that have rows.
    """
    if get_instance(instance).strict is False or _is_declared(instance, name):
        return
    rows = [] if stored is None else list(stored(instance))
    if name in rows:
        return
    raise InvalidJobTypeError(
        f"{verb}: no code of this process declares job type {name!r}"
        f"{nearest_name(name, {*known_names(instance), *rows})} "
        "Correct the name, declare the type, or set STRICT to False."
    )


def stored_names(instance: str) -> list[str]:
    """Return the names of the job types that have rows."""
    rows = JobType.objects.using(get_instance(instance).database).filter(instance=instance)
    return list(rows.values_list("name", flat=True))


def _is_declared(instance: str, name: str) -> bool:
    """Return whether code declares the name, or a task of Django has it as its path."""
    if get_declared(instance, name) is not None:
        return True
    used = any(configured.instance_of(entry) == instance for _, entry in configured.entries())
    return used and find_declared(instance, name, "django.tasks") is not None
