"""Jobs that were executing when one worker and then another died: they may have killed both.

A first loss says nothing: a machine went away, and each of its jobs runs again like any other. A
job that was on two lost workers is a suspect, until one of its attempts ends in another way, and a
worker executes one suspect at a time. So the next worker that dies shows which job killed it. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from hipq_django.models import Job

LOST: Final = "WorkerLost"
"""The beginning of the error of a job whose worker died while it owned the job."""

SUSPECT: Final = f"{LOST}: suspect: was on two workers that were lost"
"""The beginning of the error of a job that may have killed its workers."""

HARMLESS: Final = f"{LOST}: before the job had started, or after its answer came"


def loss_text(job: Job, *, was_lost_before: bool) -> str:
    """Return the error of a job that was executing when its worker died."""
    name = job.worker.name if job.worker else "that had it"
    begins = f"{SUSPECT};" if was_lost_before else f"{LOST}:"
    return f"{begins} worker {name} stopped while it executed attempt {job.attempt}"


def was_lost(error: Any) -> bool:
    """Return whether a waiting job with this error lost its worker, even before it had started."""
    return isinstance(error, str) and error.startswith(LOST)


def is_suspect(error: Any) -> bool:
    """Return whether a waiting job with this error may have killed its workers."""
    return isinstance(error, str) and error.startswith(SUSPECT)
