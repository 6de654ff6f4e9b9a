"""Reads what jobs wait for from the rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple

from django.db.models import Exists, OuterRef, Q, Subquery

from hipq_django.database.lookups import in_parts
from hipq_django.domain.dependencies import (
    PART,
    Need,
    Verdict,
    need_of_batch,
    need_of_job,
    verdict,
)
from hipq_django.domain.states import LIVE, NONE, UNSUCCESSFUL, Outcome, State
from hipq_django.models import Batch, Job, Link
from hipq_django.models.link import UNTOLD

INPUTS_PAGE = 1_000
"""How many jobs of a batch are read at once."""

AFTER_PAGE = 100
"""How many of the other jobs that one follows are read at once: each result may be large."""

_WAITS = Q(job__hold_time__isnull=False, job__state="initial") | UNTOLD
"""Links of held jobs, as `JobQuerySet.held` says it, and of parts that were not told yet."""

_SUCCEEDED = Q(needs_job__state=State.FINAL, needs_job__outcome=Outcome.SUCCEEDED)


def verdicts(ids: Collection[int], using: str) -> dict[int, Verdict]:
    """Return whether held jobs may go on, by their ids.

    A job may wait for very many, so of those that are live one is read, and of those that have
    succeeded none.
    """
    needs: dict[int, list[Need]] = {pk: [] for pk in ids}
    waiting = Job.objects.using(using).filter(pk__in=ids).annotate(live=_live_need("pk", using))
    for held, live in waiting.filter(live__isnull=False).values_list("pk", "live"):
        needs[held].append(Need("", f"job {live}", is_live=True))
    of_batch: dict[int, Need] = {}
    after: dict[int, int] = {}
    links = Link.objects.using(using).filter(job__in=ids).order_by("pk")
    links = links.exclude(_SUCCEEDED | Q(needs_job__state__in=LIVE))
    fields = ("needs_job__job_type__name", "needs_job__state", "needs_job__outcome")
    for held, on, job, batch, *seen in links.values_list(
        "job_id", "on", "needs_job_id", "needs_batch_id", *fields
    ):
        if batch is None:
            needs[held].append(need_of_job(on, job, *seen))
            continue
        if batch not in of_batch:
            of_batch[batch] = _of_batch(batch, using)
        after[held] = batch
        needs[held].append(of_batch[batch]._replace(on=on))
    return {pk: verdict(of_job)._replace(batch=after.get(pk)) for pk, of_job in needs.items()}


def _live_need(held: str, using: str) -> Subquery:
    """Return the newest of the live jobs that a held job waits for.

    Jobs mostly end in the order of their ids, so it is found at once. The state is not joined:
    without statistics PostgreSQL would begin with all jobs that are live.
    """
    state = Job.objects.using(using).filter(pk=OuterRef("needs_job")).values("state")
    links = Link.objects.using(using).filter(job=OuterRef(held)).alias(state=Subquery(state))
    live = links.filter(state__in=LIVE).order_by("-needs_job_id")
    return Subquery(live.values("needs_job_id")[:1])


def needs_of_jobs(
    wanted: Mapping[int, datetime | None], instance: str, using: str
) -> dict[int, Need]:
    """Return the needs for jobs, by their ids; without those that the instance does not have.

    `wanted` are the ids, each with when its job was created, where that is known.
    """
    found: dict[int, Need] = {}
    fields = ("create_time", "pk", "job_type__name", "state", "outcome")
    for part in in_parts(wanted, using):
        rows = Job.objects.using(using).filter(pk__in=part, queue__instance=instance)
        for created, pk, *seen in rows.values_list(*fields):
            if wanted[pk] in (None, created):
                found[pk] = need_of_job("", pk, *seen)
    return found


def links_of(ids: Collection[int], using: str) -> set[tuple[int, int | None, str]]:
    """Return which jobs follow which, and how these have to end."""
    found: set[tuple[int, int | None, str]] = set()
    for part in in_parts(ids, using):
        links = Link.objects.using(using).filter(job__in=part)
        found.update(links.values_list("job_id", "needs_job_id", "on"))
    return found


def _of_batch(pk: int, using: str) -> Need:
    batch = Batch.objects.using(using).filter(pk=pk).first()
    name = batch.name if batch else NONE
    is_live = members(pk, using).filter(state__in=LIVE).exists()
    failed = 0 if is_live else without_success(pk, using).count()
    return need_of_batch("", pk, name, is_live=is_live, failed=failed)


def members(batch: int, using: str) -> Any:
    """Return the jobs of a batch."""
    return Job.objects.using(using).filter(batch=batch)


def without_success(batch: int, using: str) -> Any:
    """Return the jobs of a batch that failed and were not requeued with success."""
    again = Job.objects.using(using).filter(origin=OuterRef("pk"), batch=batch)
    ended = members(batch, using).filter(state=State.FINAL, outcome__in=UNSUCCESSFUL)
    return ended.filter(~Exists(again))


class Dependents(NamedTuple):
    """What waits for jobs that have ended."""

    held: Sequence[int]
    """The ids of held jobs."""
    parts: Sequence[int]
    """The ids of links whose jobs have not been told of their part."""


def dependents_of(ids: Collection[int], using: str) -> Dependents:
    """Return what waits for any of these jobs, or for their batches.

    Left out are jobs that wait for others too, unless one of these jobs has failed: hundreds may
    wait for the same hundreds, and all would be judged at the end of each.
    """
    found: set[tuple[int, int, str]] = set()
    for part in in_parts(ids, using):
        waiting = Link.objects.using(using).filter(_WAITS).annotate(live=_live_need("job", using))
        links = waiting.values_list("pk", "job_id", "on")
        batches = Job.objects.using(using).filter(pk__in=part, batch__isnull=False)
        of_batches = links.filter(needs_batch__in=batches.values("batch"))
        of_jobs = links.filter(~_SUCCEEDED | Q(on=PART) | Q(live=None), needs_job__in=part)
        found.update(of_jobs.union(of_batches))
    held = sorted({job for _, job, on in found if on != PART})
    return Dependents(held, sorted(pk for pk, _, on in found if on == PART))


def inputs(job: Job) -> Iterator[tuple[Job, Any]]:
    """Yield the jobs that a job waited for, in order, each with its result; None without one.

    Those of a batch come in the order of their ids, without jobs that were requeued. One that was
    deleted keeps its place: of its copy only the id is known.
    """
    rows = Job.objects.using(job.using).select_related("queue", "job_type")
    # At most MAX_AFTER. Behind a pooler the cursor of `iterator()` would be in another session.
    links = iter(job.needs.exclude(on=PART).order_by("pk"))
    while page := list(islice(links, AFTER_PAGE)):
        single = rows.in_bulk([link.needs_job_id for link in page if link.needs_job_id])
        for link in page:
            if link.needs_batch_id:
                yield from map(
                    _with_result, _members_in_order(rows, link.needs_batch_id, job.using)
                )
            elif needed := single.get(link.needs_job_id):
                yield _with_result(needed)
            else:
                yield Job.from_db(job.using, ["id", "job_key"], [link.needs_job_id, NONE]), None


def _with_result(job: Job) -> tuple[Job, Any]:
    return job, job.result if job.outcome == Outcome.SUCCEEDED else None


def _members_in_order(rows: Any, batch: int | None, using: str) -> Iterator[Job]:
    again = Job.objects.using(using).filter(origin=OuterRef("pk"), batch=batch)
    jobs, last = rows.filter(~Exists(again), batch=batch).order_by("pk"), 0
    while page := list(jobs.filter(pk__gt=last)[:INPUTS_PAGE]):
        yield from page
        last = page[-1].pk
