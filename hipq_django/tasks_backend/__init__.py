"""The backend for `django.tasks`: the setting TASKS names `hipq_django.tasks_backend.HipqBackend`.

Needs Django 6, or on Django 5.2 the package django-tasks (extra `tasks`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hipq_django.tasks_backend.backend import HipqBackend as HipqBackend
    from hipq_django.tasks_backend.hipq_task import HipqTask as HipqTask
    from hipq_django.tasks_backend.names import task as task

_HOMES = {"HipqBackend": "backend", "HipqTask": "hipq_task", "task": "hipq_task"}


def __getattr__(name: str) -> Any:
    # Late, because the package can be imported without `django.tasks`.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
