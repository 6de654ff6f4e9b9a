"""The job whose handler is running."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from hipq_django.models import Job

CURRENT_JOB: ContextVar[Job | None] = ContextVar("hipq_running_job", default=None)
"""The job whose handler is running; set only by the code that calls handlers."""

JOB: Final[Any] = None
"""The default of a task's parameter `job`, for type checkers: the worker fills it in.

In a direct call it stands for the current job, or None outside of handlers.
"""

INPUTS: Final[Any] = ()
"""The default of a task's parameter `inputs`: the results of the jobs that it waited for."""


def current_job() -> Job | None:
    """Return the job whose handler is calling, or None outside of handlers."""
    return CURRENT_JOB.get()
