"""Jobs that were executing when their worker died: one of them may have killed it.

Until one of its attempts ends in another way such a job is a suspect, and a worker executes one
suspect at a time. So the next worker that dies shows which job killed it. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from hipq_django.models import Job

LOST: Final = "WorkerLost"
"""The beginning of the error of a job whose worker died while it owned the job."""

SUSPECT: Final = f"{LOST}: worker "
"""The beginning of the error of a job that was executing then."""

HARMLESS: Final = f"{LOST}: before the job had started, or after its answer came"


def loss_text(job: Job) -> str:
    """Return the error of a job that was executing when its worker died."""
    name = job.worker.name if job.worker else "that had it"
    return f"{SUSPECT}{name} stopped while it executed attempt {job.attempt}"


def was_lost(error: Any) -> bool:
    """Return whether a waiting job with this error lost its worker, even before it had started."""
    return isinstance(error, str) and error.startswith(LOST)


def is_suspect(error: Any) -> bool:
    """Return whether a waiting job with this error may have killed its worker."""
    return isinstance(error, str) and error.startswith(SUSPECT)
