"""The fast path of queues without limit and throttlers: one statement chooses and claims jobs.

It is a transaction of its own, with nothing to send before and after it. What it leaves goes by
`admission`, which looks at each job.
"""

from __future__ import annotations

import logging
from math import inf
from typing import TYPE_CHECKING

from hipq_django import transitions
from hipq_django.database import clock
from hipq_django.database.clock import steady
from hipq_django.domain.states import Phase
from hipq_django.engines.rows import set_types
from hipq_django.engines.values import ClaimRequest
from hipq_django.scheduler.context import Admitted
from hipq_django.signals import job_started, send_after_commit
from hipq_django.transitions.values import Claim, snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hipq_django.models import Job, Queue
    from hipq_django.scheduler.context import SchedulerContext

logger = logging.getLogger("hipq_django")

PAGE_SIZE = 500
"""How many jobs one statement claims, or reads to be looked at."""

ANSWER_SECONDS = 1.0
"""How long the database may take to answer a claim, and the answer still counts as fresh."""


def claim_plain_queues(context: SchedulerContext, queues: Sequence[Queue], limit: int) -> Admitted:
    """Claim jobs of queues that have no limit and no throttlers, in their order.

    After a full page the queue of the last job has more.
    """
    wanted = ClaimRequest(context.runner.free_slots(), limit, list(context.types.by_id))
    now, sent = clock.now(context.using), steady()
    jobs = transitions.claim_due(queues, context.worker, now, wanted)
    return Admitted(handler_claims(context, jobs, sent), has_more=len(jobs) == PAGE_SIZE)


def handler_claims(context: SchedulerContext, jobs: Sequence[Job], sent: float) -> list[Claim]:
    """Return what is to be done for jobs that one statement, `sent` at a moment, has claimed."""
    set_types(jobs, context.types.by_id)
    emit_started(jobs, context.using)
    known_at = known_since(sent)
    return [handler_claim(job, known_at) for job in jobs]


def known_since(sent: float) -> float:
    """Return since when claims are known to hold whose statement was `sent` at a moment.

    They are as fresh as the answer of the database; unless that was a long time in coming, because
    this process was stopped say.
    """
    now = steady()
    return now if now < sent + ANSWER_SECONDS else sent


def committed(claims: list[Claim]) -> list[Claim]:
    """Note that claims which were made in one transaction are committed."""
    if claims:
        known_at = known_since(claims[0].known_at)
        for claim in claims:
            claim.known_at = known_at
    return claims


def emit_started(jobs: Sequence[Job], using: str) -> None:
    """Say that these jobs are claimed."""
    send_after_commit(job_started, jobs, using)
    if logger.isEnabledFor(logging.INFO):
        for job in jobs:
            logger.info(
                "job=%s type=%s key=%s attempt=%s event=started",
                job.id, job.job_type.name, job.job_key, job.attempt,
            )  # fmt: skip


def handler_claim(job: Job, known_at: float) -> Claim:
    """Return what is to be done for a claimed job without an answer: its handler."""
    return Claim(
        job.id, job.attempt, Phase.REQUEST, job, snapshot(job), None, None,
        known_at, inf, 0.0, not job.prefetched,
    )  # fmt: skip
