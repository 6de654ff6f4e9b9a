"""The names of `django.tasks`: of Django 6, or of the package django-tasks on Django 5.2.

Where there is neither, importing this module raises `ImportError` and says what to install.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import django
from django.dispatch import Signal

if TYPE_CHECKING or django.VERSION >= (6, 0):
    from django.tasks import Task, TaskContext, TaskResult, TaskResultStatus, task, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import TaskError
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
    from django.tasks.signals import (
        log_task_finished,
        log_task_started,
        logger,
        task_enqueued,
        task_finished,
        task_started,
    )
    from django.utils.json import normalize_json
else:
    try:
        from django_tasks import (
            TaskContext,
            TaskResult,
            TaskResultStatus,
            task,
            task_backends,
        )
        from django_tasks.backends.base import BaseTaskBackend
        from django_tasks.base import Task, TaskError
        from django_tasks.exceptions import InvalidTaskError as InvalidTask, TaskResultDoesNotExist
        from django_tasks.signals import (
            log_task_finished,
            log_task_started,
            logger,
            task_enqueued,
            task_finished,
            task_started,
        )
        from django_tasks.utils import normalize_json
    except ImportError as error:
        raise ImportError(
            "hipq_django.tasks_backend needs django.tasks: Django 6, or on Django 5.2 the package "
            "django-tasks. Install it: pip install 'hipq-django[tasks]'."
        ) from error

__all__ = [
    "BaseTaskBackend",
    "InvalidTask",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "is_heard",
    "logger",
    "normalize_json",
    "path_of",
    "task",
    "task_backends",
    "task_enqueued",
    "task_finished",
    "task_started",
]


def path_of(thing: Any) -> str:
    """Return the dotted path of a function or a class."""
    return f"{thing.__module__}.{thing.__qualname__}"


_LOGGING = tuple([(id(log), id(None))] for log in (log_task_started, log_task_finished))
"""What a signal knows its receivers by if only `django.tasks` itself listens, which logs it."""


def is_heard(signal: Signal) -> bool:
    """Return whether anybody would notice that a task has begun, or succeeded.

    Receivers of the project do, and the lines of `django.tasks` if its logger has level INFO.
    """
    by = [receiver[0] for receiver in signal.receivers]
    return by not in _LOGGING or logger.isEnabledFor(logging.INFO)
