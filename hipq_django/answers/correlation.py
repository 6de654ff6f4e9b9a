"""Looking for the job of a message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hipq_django.database.locks import first_for_key_share, locked
from hipq_django.domain.states import NONE
from hipq_django.models import Job, JobType

if TYPE_CHECKING:
    from hipq_django.domain.drafts import IncomingAnswer


def lock_job(message: IncomingAnswer, using: str, *, skip_locked: bool = False) -> Job | None:
    """Return the locked job of a message by its key: the live one, else the newest final one.

    A final one is only kept from being pruned before the answer that names it is stored. With
    `skip_locked` None is returned where somebody has locked the live one.
    """
    if message.job_key == NONE:
        return None
    jobs = Job.objects.using(using).filter(
        job_type__in=JobType.objects.using(using).filter(
            instance=message.instance, name=message.job_type
        ),
        job_key=message.job_key,
    )
    rows = jobs.live().keyed()
    live = next(iter(locked(rows, skip_locked=skip_locked)[:1]), None)
    if live is None and skip_locked and rows.exists():
        return None
    final: Job | None = first_for_key_share(jobs.final().keyed().order_by("-pk"))
    return live or final


def lock_job_by_id(pk: int, using: str) -> Job | None:
    """Return one job, locked; None where it was pruned."""
    return next(iter(locked(Job.objects.using(using).filter(pk=pk))), None)
