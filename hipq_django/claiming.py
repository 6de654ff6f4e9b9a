"""Claims at once, as most jobs are: they need no look, so one statement chooses and claims them.

It is a transaction of its own, with nothing to send before and after it. What is left goes by
`admission`, which looks at each job.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from hipq_django import clock, moves
from hipq_django.hotpath.base import Wanted
from hipq_django.results import Claim, keep
from hipq_django.signals import job_started, send_after_commit
from hipq_django.states import Work
from hipq_django.steady import steady

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hipq_django.models import Job, Queue
    from hipq_django.scheduler import BatchScheduler

logger = logging.getLogger("hipq_django")

PAGE = 500
"""How many jobs one statement claims, or reads to be looked at."""


def claim_together(scheduler: BatchScheduler, queues: Sequence[Queue], limit: int) -> list[Claim]:
    """Claim and start jobs of queues that have no limit and no throttlers, in their order."""
    wanted = Wanted(scheduler.executor.free(), limit, list(scheduler.types))
    now, sent = clock.now(scheduler.using), steady()
    jobs = moves.claim_due(queues, scheduler.worker, now, wanted)
    if len(jobs) == PAGE and jobs[0].queue_id == jobs[-1].queue_id:
        scheduler.turns.call(jobs[0].queue.name)  # there is more where this came from
    return start_requests(scheduler, jobs, sent)


def start_requests(scheduler: BatchScheduler, jobs: Sequence[Job], sent: float) -> list[Claim]:
    """Start the handlers of jobs that were claimed at once, by a statement `sent` at a moment."""
    for job in jobs:
        job._state.fields_cache["job_type"] = scheduler.types[job.job_type_id]
    announce(jobs, scheduler.using)
    return scheduler.start_jobs([request(job, sent) for job in jobs])


def announce(jobs: Sequence[Job], using: str) -> None:
    """Say that these jobs are claimed."""
    send_after_commit(job_started, jobs, using)
    if logger.isEnabledFor(logging.INFO):
        for job in jobs:
            logger.info(
                "job=%s type=%s key=%s attempt=%s event=started",
                job.id, job.job_type.name, job.job_key, job.attempt,
            )  # fmt: skip


def request(job: Job, known_at: float) -> Claim:
    """Return what is to be done for a claimed job without an answer: its handler."""
    return Claim(
        job.id, job.attempt, Work.REQUEST, job, keep(job),
        known_at=known_at, is_known_as_started=not job.prefetched,
    )  # fmt: skip
