"""Which entry of the setting TASKS an instance belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.conf import settings

from hipq_django.conf.rules import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hipq_django.tasks_backend.backend import HipqBackend

BACKEND = "hipq_django.tasks_backend.HipqBackend"
INSTANCE = "INSTANCE"
OPTIONS = (INSTANCE,)
"""The options of the backend."""


def entries() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the aliases and values of the entries that name this backend."""
    tasks = getattr(settings, "TASKS", None)
    for alias, entry in tasks.items() if isinstance(tasks, dict) else ():
        if isinstance(entry, dict) and entry.get("BACKEND") == BACKEND:
            yield alias, entry


def instance_of(entry: Mapping[str, Any]) -> str:
    """Return the instance whose jobs the tasks of an entry are."""
    options = entry.get("OPTIONS")
    return str(options.get(INSTANCE, DEFAULT)) if isinstance(options, dict) else DEFAULT


def backend_of(instance: str) -> HipqBackend:
    """Return the backend whose tasks are jobs of an instance; one of its own where none is set."""
    from hipq_django.tasks_backend.backend import HipqBackend

    for alias, entry in entries():
        if instance_of(entry) == instance:
            return HipqBackend(alias, entry)
    return HipqBackend(DEFAULT, {"QUEUES": [], "OPTIONS": {INSTANCE: instance}})
