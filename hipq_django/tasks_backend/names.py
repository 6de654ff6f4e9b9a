"""The names of `django.tasks`: of Django 6, or of the package django-tasks on Django 5.2.

Where there is neither, importing this module raises `ImportError` and says what to install.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import django
from django.conf import settings
from django.utils.log import RequireDebugTrue

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
    "is_run_heard",
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


_LOGGED_START, _LOGGED_END = [(id(log), id(None)) for log in (log_task_started, log_task_finished)]
"""What the signals know their receivers by if only `django.tasks` itself listens, which logs it."""


def is_run_heard() -> bool:
    """Return whether anybody would notice that a task has begun, or succeeded.

    Receivers of the project do, and whoever sees the lines of `django.tasks` of level INFO.
    """
    at_start, at_end = task_started.receivers, task_finished.receivers
    if len(at_start) != 1 or len(at_end) != 1:
        return True
    if at_start[0][0] != _LOGGED_START or at_end[0][0] != _LOGGED_END:
        return True
    return logger.isEnabledFor(logging.INFO) and _has_readers(logger)


def _has_readers(source: logging.Logger) -> bool:
    """Return whether a line of level INFO gets anywhere.

    A project without settings for it has a handler that takes such lines while DEBUG is on. Tools
    like Sentry's take lines before the handlers do.
    """
    if type(source).callHandlers.__module__ != "logging":
        return True
    above: logging.Logger | None = source
    while above is not None:
        for handler in above.handlers:
            if handler.level <= logging.INFO and (settings.DEBUG or _takes_always(handler)):
                return True
        above = above.parent if above.propagate else None
    return False


def _takes_always(handler: logging.Handler) -> bool:
    return not any(isinstance(each, RequireDebugTrue) for each in handler.filters)
