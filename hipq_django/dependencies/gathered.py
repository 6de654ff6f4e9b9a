"""Tells jobs that have gathered others how these have ended: each end answers one part."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any

from hipq_django.answers import arrival
from hipq_django.database import clock
from hipq_django.database.isolation import Isolation
from hipq_django.database.locks import locked
from hipq_django.database.transactions import worker_transaction
from hipq_django.domain.drafts import IncomingAnswer
from hipq_django.domain.states import AnswerKind, Outcome
from hipq_django.models import Job, Link
from hipq_django.models.link import UNTOLD
from hipq_django.models.masking import shown

DUTY = "unhold_jobs"
"""The name of the duty in the log: telling parts is a step of it."""


def tell_page(after: int, size: int, left_alone: Isolation[int], using: str) -> tuple[int, int]:
    """Tell of the next links after an id those whose jobs have ended.

    Return how many parts were told, and the id after which the next page begins; 0 at the end.
    """
    links = list(_untold(using).filter(pk__gt=after).order_by("pk")[:size])
    last = links[-1].pk if len(links) == size else 0
    return _tell_of(links, left_alone, using), last


def tell_links(ids: Collection[int], using: str) -> None:
    """Tell the jobs that have gathered others of those that have ended; links name both."""
    if ids:
        _tell_of(_untold(using).filter(pk__in=ids), Isolation(DUTY), using)


def _untold(using: str) -> Any:
    return Link.objects.using(using).filter(UNTOLD)


def _tell_of(links: Iterable[Link], left_alone: Isolation[int], using: str) -> int:
    left, told = left_alone.ids, 0
    ended = _ended([link for link in links if link.job_id not in left], using)
    for pk, of_job in groupby(sorted(ended, key=attrgetter("job_id", "pk")), attrgetter("job_id")):
        tell = partial(_tell, [link.pk for link in of_job], using)
        told += left_alone.move([pk], tell)
    return told


def _ended(links: Sequence[Link], using: str) -> list[Link]:
    """Return the links whose needed jobs are final, or gone."""
    live = Job.objects.using(using).live().filter(pk__in=[link.needs_job_id for link in links])
    waits = set(live.values_list("pk", flat=True)) if links else set()
    return [link for link in links if link.needs_job_id not in waits]


def _tell(ids: Sequence[int], using: str, jobs: Sequence[int]) -> int:
    """Answer a job for the parts of some links; the sweep comes back to one that is locked."""
    [pk] = jobs
    with worker_transaction(using):
        job = arrival.lock_job_by_id(pk, using)
        rows = Link.objects.using(using).filter(pk__in=ids, is_told=False).order_by("pk")
        links = list(locked(rows))
        if job is not None and not job.is_final:
            _answer(job, links)
        return Link.objects.using(using).filter(pk__in=ids).update(is_told=True)


def _answer(job: Job, links: Sequence[Link]) -> None:
    using = job.using
    needed = Job.objects.using(using).in_bulk([link.needs_job_id for link in links])
    place = job.job_type.instance, job.job_type.name, job.job_key
    for link in links:
        payload = _end_of(needed.get(link.needs_job_id), link)
        message = IncomingAnswer(*place, AnswerKind.RESPONSE, payload, part=link.part)
        arrival.receive(message, job, clock.now(using), using)


def _end_of(job: Job | None, link: Link) -> dict[str, Any]:
    if job is None:
        return {"error": f"job {link.needs_job_id} does not exist any more"}
    if job.outcome == Outcome.SUCCEEDED:
        return {"result": job.result}
    return {"error": shown(job, job.error)}
