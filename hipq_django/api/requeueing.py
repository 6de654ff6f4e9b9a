"""`requeue`: new jobs from final ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from hipq_django.api.building import hold, new_job
from hipq_django.api.control import read_row
from hipq_django.api.enqueueing import announce_new, insert_all
from hipq_django.api.keys import check_distinct, check_free
from hipq_django.conf.instances import on_shard
from hipq_django.conf.rules import DEFAULT
from hipq_django.database import clock
from hipq_django.database.locks import for_key_share
from hipq_django.database.lookups import ids_in
from hipq_django.database.transactions import check_commits, write_transaction
from hipq_django.dependencies.following import store
from hipq_django.dependencies.needs import without_success
from hipq_django.domain.dependencies import PART, was_ended_by
from hipq_django.domain.job_options import CHANGED, checks
from hipq_django.domain.sharding import key_of_row
from hipq_django.domain.states import UNSUCCESSFUL, Outcome
from hipq_django.exceptions import InvalidJobError
from hipq_django.models import Batch, Job, Link
from hipq_django.models.catalog import get_job_type, get_queue
from hipq_django.models.naming import Keyed, job_of, twin, verb
from hipq_django.sharding import routing

MOST_LOOKED_AT = 100


@verb
def requeue(
    job: Job | Keyed,
    *,
    dependents: bool = False,
    instance: str = DEFAULT,
    shard_key: str | None = None,
) -> Job:
    """Create a new job from a final one, with the same values; return it.

    Its `origin` is the old job, which stays as it is and whose `inputs` it has; in the place of a
    job that did not succeed it follows the newest that was requeued from that. With `dependents`
    the jobs that were cancelled because this one did not succeed are requeued too, and linked as
    before; a job of a batch stays in the same batch. If the job's key leads to another shard by
    now, the new job is there, without an origin and inputs; not so with `dependents`. Raise
    `InvalidJobError` for a job that is not final, `DuplicateJobKeyError` if its key is in use.
    """
    origin = job_of(job, instance, final=True)
    check_commits(origin.using)
    read_row(origin, Job.objects.using(origin.using).row_of(origin))
    if not origin.is_final:
        raise InvalidJobError(
            f"{origin} is {origin.state}; only final jobs can be requeued. Use run_now "
            "for a waiting job."
        )
    if dependents:
        return _requeue_with_dependents(origin)
    using = place_of_copy(origin)
    fresh = copy_of_final(origin) if using == origin.using else _copy_in(using, origin)
    store_copies({origin.pk: fresh}, fresh.using)
    return fresh


def store_copies(copies: Mapping[int, Job], using: str) -> None:
    """Store new jobs, which are given by the ids of their origins, and what they follow.

    Raise `DuplicateJobKeyError`, with nothing stored, if one of their keys is in use.
    """
    if copies:
        with transaction.atomic(using=using):
            _insert(copies, _hold_again(copies, using), using)


def _insert(copies: Mapping[int, Job], links: Iterable[Any], using: str) -> None:
    fresh = list(copies.values())
    check_distinct(fresh, "requeue")
    insert_all(fresh, using, "requeue")
    _link_again(links, copies, using)
    announce_new(fresh, using)


def _requeue_with_dependents(origin: Job) -> Job:
    """Copy a job and those that it took down, linked to each other as they were."""
    using = origin.using
    with write_transaction(using):
        batches = _batches_of([origin], using)  # first: nobody gives up what follows it meanwhile
        old = [origin, *_taken_down(origin)]
        batches |= _batches_of(old, using)
        copies = {job.pk: copy_of_final(job) for job in old}
        for job in old:
            copies[job.pk].batch_id = job.batch_id if job.batch_id in batches else None
        links = _hold_again({origin.pk: copies[origin.pk]}, using)
        for job in old[1:]:
            hold(copies[job.pk])
        links += _links([job.pk for job in old[1:]], using)
        _insert(copies, links, using)
    return copies[origin.pk]


def _batches_of(jobs: Sequence[Job], using: str) -> set[int]:
    """Return the batches of jobs, without those that were pruned; none of them is pruned now."""
    ids = {job.batch_id for job in jobs if job.batch_id}
    if not ids:
        return ids
    rows = Batch.objects.using(using).filter(ids_in("id", ids)).order_by("pk")
    return {batch.pk for batch in for_key_share(rows)}


def has_taken_down(job: Job) -> bool:
    """Return whether jobs were cancelled because this one did not succeed, not requeued since.

    Of very many that followed it, the first are looked at.
    """
    if job.outcome == Outcome.SUCCEEDED:
        return False
    return next(_taken_down_by([job], MOST_LOOKED_AT), None) is not None


def _taken_down(origin: Job) -> list[Job]:
    """Return the jobs that were cancelled because this one did not succeed, each once, in order."""
    found = dict[int, Job]()
    level = [origin]
    while level:
        level = [job for job in _taken_down_by(level) if job.pk not in found]
        found |= {job.pk: job for job in level}
    return [found[pk] for pk in sorted(found)]


def _taken_down_by(jobs: Sequence[Job], most: int | None = None) -> Iterator[Job]:
    """Yield the jobs that were cancelled because of one of these, and not requeued since."""
    using = jobs[0].using
    ids = {job.pk for job in jobs}
    batches = {job.batch_id for job in jobs if job.batch_id}
    of_these = Q(ids_in("needs_job_id", ids)) | Q(ids_in("needs_batch_id", batches))
    links = Link.objects.using(using).filter(of_these)
    rows = Job.objects.using(using).filter(pk__in=links.values("job"), outcome=Outcome.CANCELLED)
    rows = rows.filter(~Exists(Job.objects.using(using).filter(origin=OuterRef("pk"))))
    for job in rows.select_related("queue", "job_type").order_by("pk")[:most]:
        if was_ended_by(job.error, ids, batches):
            yield job


def _hold_again(fresh: Mapping[int, Job], using: str) -> list[Any]:
    """Hold those new jobs that follow what has not ended; return the links of their origins.

    The jobs are given by the ids of their origins. What has ended already without success
    does not end them once more: whoever requeues them knows of it. See `links_to_newest`.
    """
    links = links_to_newest(fresh, using)
    for link in links:
        if link.is_live or link.needs_job_id in fresh:
            if fresh[link.job_id].hold_time is None:
                hold(fresh[link.job_id])
        elif link.needs_job_id and link.outcome != Outcome.SUCCEEDED:
            link.on = "final"
    return links


def links_to_newest(origins: Iterable[int], using: str) -> list[Any]:
    """Return what new jobs follow, by the links of their origins, and whether that `is_live`.

    It is what these followed; or, in the place of a job that did not succeed, the newest that was
    requeued from it.
    """
    live = Job.objects.using(using).live()
    jobs, batches = (
        live.filter(pk=OuterRef("needs_job")),
        live.filter(batch=OuterRef("needs_batch")),
    )
    rows = _links(origins, using).annotate(is_live=Exists(jobs) | Exists(batches))
    links = list(rows.annotate(outcome=F("needs_job__outcome")))
    over = [link for link in links if link.needs_job_id and not link.is_live]
    newest = _newest_from({link.needs_job_id: link.outcome for link in over}, using)
    places = {(link.job_id, link.needs_job_id) for link in links}
    for link in over:
        found = newest.get(link.needs_job_id)
        if found is not None and (link.job_id, found.pk) not in places:
            places.add((link.job_id, found.pk))
            link.needs_job_id, link.outcome = found.pk, found.outcome
            link.is_live = not found.is_final
    return links


def _newest_from(ended: Mapping[int, str], using: str) -> dict[int, Job]:
    """Return the newest jobs that were requeued from unsuccessful ones, by the ids of these.

    Those are given with their outcomes.
    """
    newest: dict[int, Job] = {}
    left = {pk: pk for pk, outcome in ended.items() if outcome != Outcome.SUCCEEDED}
    while left:
        copies = _copies_of(left.values(), using)
        found = {first: copies[pk] for first, pk in left.items() if pk in copies}
        newest |= found
        left = {first: job.pk for first, job in found.items() if job.outcome in UNSUCCESSFUL}
    return newest


def _copies_of(ids: Iterable[int], using: str) -> dict[int | None, Job]:
    """Return the job that was requeued last from each of some jobs, by their ids."""
    rows = Job.objects.using(using).filter(ids_in("origin_id", ids)).order_by("pk")
    return {job.origin_id: job for job in rows.only("origin_id", "state", "outcome")}


def runs_without(job: Job) -> bool:
    """Return whether a new job would lack what a final one was to follow: it did not succeed."""
    for link in links_to_newest([job.pk], job.using):
        if link.is_live or link.on != "succeeded":
            continue
        if link.needs_job_id and link.outcome != Outcome.SUCCEEDED:
            return True
        if link.needs_batch_id and without_success(link.needs_batch_id, job.using).exists():
            return True
    return False


def _links(origins: Iterable[int], using: str) -> QuerySet[Any]:
    """Return the links of final jobs to what they followed."""
    links = Link.objects.using(using).filter(ids_in("job_id", origins)).exclude(on=PART)
    return links.order_by("pk")


def _link_again(links: Iterable[Any], copies: Mapping[int, Job], using: str) -> None:
    """Store links of new jobs, which are given by the ids of their origins, as these had them.

    Where a job followed one that was copied with it, its copy follows the copy of that one.
    """
    newest = {pk: copy.pk for pk, copy in copies.items()}
    again = [
        Link(
            job=copies[link.job_id],
            needs_job_id=newest.get(link.needs_job_id, link.needs_job_id),
            needs_batch_id=link.needs_batch_id,
            on=link.on,
        )
        for link in links
    ]
    store(again, [job.pk for job in copies.values() if job.hold_time is not None], using)


def copy_of_final(job: Job) -> Job:
    """Return an unsaved job with the values of a final one, which is its origin."""
    fresh = new_job(job.queue, job.job_type, clock.now(job.using), **_values(job))
    fresh.origin = job
    return fresh


def _values(job: Job) -> dict[str, Any]:
    names = (*checks(CHANGED), "waiting_key", "schedule_id", "due_time", "shard_key")
    return {name: getattr(job, name) for name in names}


def place_of_copy(job: Job) -> str:
    """Return the database of a new job from a final one: that of its key, not of schedules."""
    keys = (job.shard_key, job.job_key, job.waiting_key, job.kept_key)
    key = "" if job.schedule_id else key_of_row(*keys)
    return routing.of_requeued(job.queue.instance, job.using, key)


def _copy_in(using: str, job: Job) -> Job:
    """Return an unsaved job for another shard; raise if a job has its key where it was before."""
    check_free([copy_of_final(job)], job.using, "requeue")
    instance = job.queue.instance
    with on_shard(instance, using):
        queue = get_queue(instance, job.queue.name)
        job_type = get_job_type(instance, job.job_type.name)
    return new_job(queue, job_type, clock.now(using), **_values(job))


arequeue = twin(requeue)
