"""Which entry of the setting TASKS an instance belongs to."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.signals import setting_changed
from django.dispatch import receiver
from django.utils.module_loading import import_string

from hipq_django.conf.rules import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hipq_django.tasks_backend.backend import HipqBackend

BACKEND = "hipq_django.tasks_backend.HipqBackend"
INSTANCE = "INSTANCE"
"""The one option of the backend."""


def entries() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the aliases and values of the entries that name this backend."""
    tasks = getattr(settings, "TASKS", None)
    for alias, entry in tasks.items() if isinstance(tasks, dict) else ():
        if isinstance(entry, dict) and _is_ours(entry.get("BACKEND")):
            yield alias, entry


def _is_ours(path: object) -> bool:
    """Whether this is the path of the backend, or of a class that a project derives from it."""
    if path == BACKEND or not isinstance(path, str):
        return path == BACKEND
    try:
        found, ours = import_string(path), import_string(BACKEND)
    except ImportError:  # Django says so itself
        return False
    return isinstance(found, type) and issubclass(found, ours)


def instance_of(entry: Mapping[str, Any]) -> str:
    """Return the instance whose jobs the tasks of an entry are."""
    options = entry.get("OPTIONS")
    return str(options.get(INSTANCE, DEFAULT)) if isinstance(options, dict) else DEFAULT


@cache
def backend_of(instance: str) -> HipqBackend:
    """Return the backend whose tasks are jobs of an instance; one of its own where none is set.

    Found once: it has no state, and is asked for with each task that runs.
    """
    own: Mapping[str, Any] = {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": {INSTANCE: instance}}
    chosen = (found for found in entries() if instance_of(found[1]) == instance)
    alias, entry = next(chosen, (DEFAULT, own))
    backend: HipqBackend = import_string(entry["BACKEND"])(alias, entry)
    return backend


@receiver(setting_changed)
def _forget_backends(*, setting: str, **_: Any) -> None:
    if setting == "TASKS":
        backend_of.cache_clear()
