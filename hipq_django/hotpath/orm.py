"""The hot path by Django's ORM: the reference, and all that other databases need."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from django.db.models import (
    BigIntegerField,
    Case,
    Exists,
    F,
    OuterRef,
    Q,
    Subquery,
    Sum,
    TextField,
    Value,
    When,
)
from django.db.models.functions import Cast, Coalesce
from django.db.models.lookups import StartsWith

from hipq_django.database import locked
from hipq_django.hotpath.base import (
    FIRST,
    Busy,
    Concluded,
    EarlyPlace,
    Failing,
    Finished,
    Head,
    Known,
    Settled,
    Wanted,
    Which,
)
from hipq_django.hotpath.rows import is_same
from hipq_django.models import Answer, Attempt, Job, Queue
from hipq_django.payloads import NONE
from hipq_django.ranking import MAX_RANK
from hipq_django.states import State, Work
from hipq_django.suspects import SUSPECT
from hipq_django.throttling import Load

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime

    from hipq_django.inbox import Message
    from hipq_django.models import Worker


class OrmPath:
    """The statements on one database alias; see `base.HotPath`."""

    def __init__(self, using: str) -> None:
        self.using = using

    def look(
        self,
        instance: str,
        names: Sequence[str],
        now: datetime,
        known: Mapping[int, Known],
    ) -> list[Busy]:
        """One query with three EXISTS for each queue."""
        jobs = Job.objects.using(self.using).filter(queue=OuterRef("pk"))
        whens = [When(pk=pk, then=Value(bound)) for pk, (bound, _, _) in known.items()]
        queues = Queue.objects.using(self.using).filter(instance=instance)
        if names:
            queues = queues.filter(name__in=names)
        due = jobs.due(now).filter(rank__lte=OuterRef("bound"))
        running = jobs.running().order_by().values("queue")
        load = Subquery(running.values(total=Sum("throttle_factor")))
        rows = queues.annotate(
            bound=Case(*whens, default=Value(MAX_RANK), output_field=BigIntegerField())
        ).annotate(
            has_due=Case(
                When(
                    Q(throttle_limit__lt=1) | Q(throttle_limit__gt=Coalesce(load, Decimal(0))),
                    then=Exists(due),
                ),
                default=Exists(due.filter(throttle_factor=0)),
            ),
            has_response=Exists(jobs.awaiting_response_handler()),
            has_error=Exists(jobs.in_error().filter(worker=None)),
        )
        return [
            Busy(q, -MAX_RANK if q.has_due else None, q.has_response, q.has_error)
            for q in rows.order_by("pk")
        ]

    def has_overdue(self, instance: str, now: datetime) -> bool:
        """Let it be looked for."""
        return True

    def has_early(self, instance: str) -> bool:
        """Let them be looked for."""
        return True

    def early_page(
        self, instance: str, after: EarlyPlace, limit: int
    ) -> tuple[list[EarlyPlace], EarlyPlace | None]:
        """One SELECT with an EXISTS."""
        name, key, pk = after
        behind = Q(job_key__gt=key) | Q(job_key=key, pk__gt=pk)
        early = self._early(instance).filter(Q(job_type__gt=name) | Q(job_type=name) & behind)
        rows = early.order_by("job_type", "job_key", "pk")
        page = list(rows.values_list("job_type", "job_key", "pk", "has_begun")[:limit])
        places = [EarlyPlace(*row[:3]) for row in page if row[3]]
        return places, EarlyPlace(*page[-1][:3]) if len(page) == limit else None

    def new_early(self, instance: str, after: int, limit: int) -> list[int]:
        """The same by id."""
        rows = self._early(instance).filter(pk__gt=after).order_by("-pk")
        return [pk for pk, begun in rows.values_list("pk", "has_begun")[:limit] if begun]

    def _early(self, instance: str) -> Any:
        jobs = Job.objects.using(self.using).filter(
            job_type__instance=instance,
            job_type__name=OuterRef("job_type"),
            job_key=OuterRef("job_key"),
        )
        begun = jobs.exclude(state=State.INITIAL).exclude(job_key=NONE)
        answers = Answer.objects.using(self.using).filter(instance=instance, job=None)
        return answers.filter(status=Answer.Status.EARLY).annotate(has_begun=Exists(begun))

    def lock(self, queue: Queue, worker: Worker) -> Queue | None:
        """One SELECT … FOR UPDATE SKIP LOCKED."""
        row = Queue.objects.using(self.using).filter(pk=queue.pk)
        return locked(row, skip_locked=True).first()

    def head(self, queue: Queue, now: datetime, limit: int, which: Which = FIRST) -> Head:
        """One SUM over the index of running jobs and two SELECTs."""
        running = queue.jobs.using(self.using).running()
        load = running.aggregate(total=Sum("throttle_factor"))["total"]
        critical = queue.jobs.using(self.using).due(now).filter(throttle_factor=0)
        jobs = self.due(queue, now, limit, which)
        return Head(jobs, Decimal(load or 0), critical.exists())

    def running(self, queue: Queue) -> list[Load]:
        """One SELECT."""
        rows = queue.jobs.using(self.using).running()
        fields = ("job_type__name", "job_key", "job_data", "throttle_factor")
        return [Load(*row) for row in rows.values_list(*fields)]

    def due(self, queue: Queue, now: datetime, limit: int, which: Which = FIRST) -> list[Job]:
        """One SELECT … FOR UPDATE SKIP LOCKED."""
        rows = queue.jobs.using(self.using).due(now)
        rows = rows.filter(rank__range=(queue.front, queue.last_due_rank(now)))
        rows = rows.order_by("rank", "id")
        if not queue.is_limited:
            rows = rows.filter(queue__paused=False, queue__throttle_limit__lt=1)
        if which.critical:
            rows = rows.filter(throttle_factor=0)
        if which.without_types:
            rows = rows.exclude(job_type__in=which.without_types)
        if which.without_suspects:
            begins = StartsWith(Cast("error", TextField()), f'"{SUSPECT}')
            rows = rows.exclude(Q(begins), state=State.RETRY)
        if which.after is not None:
            rank, pk = which.after
            rows = rows.filter(Q(rank__gt=rank) | Q(rank=rank, pk__gt=pk))
        return list((locked(rows, skip_locked=True) if which.locks else rows)[:limit])

    def lock_unchanged(self, jobs: Sequence[Job]) -> list[Job]:
        """One SELECT … FOR UPDATE SKIP LOCKED."""
        rows = Job.objects.using(self.using).waiting().filter(pk__in=[job.pk for job in jobs])
        now = {job.pk: job for job in locked(rows.order_by("pk"), skip_locked=True)}
        return [now[job.pk] for job in jobs if job.pk in now and is_same(job, now[job.pk])]

    def claim_due(
        self, queues: Sequence[Queue], worker: Worker, now: datetime, wanted: Wanted
    ) -> list[Job]:
        """Leave it all to `due` and `claim`."""
        return []

    def refill(
        self,
        done: Sequence[Finished],
        queue: Queue,
        worker: Worker,
        now: datetime,
        wanted: Wanted,
    ) -> tuple[set[int], list[Job]]:
        """Leave it all to the careful way."""
        return set(), []

    def claim(self, jobs: Sequence[Job], worker: Worker, now: datetime) -> int:
        """One UPDATE for each timeout among the jobs."""
        claimed = 0
        groups: dict[Any, list[int]] = {}
        for job in jobs:
            groups.setdefault((job.timeout, job.prefetched), []).append(job.pk)
        for (timeout, prefetched), ids in groups.items():
            rows = Job.objects.using(self.using).filter(worker.is_live(), pk__in=ids)
            claimed += rows.waiting().update(
                state=State.RUNNING,
                error=NONE,
                worker=worker,
                work=Work.REQUEST,
                attempt=F("attempt") + 1,
                deadline=now + timedelta(seconds=timeout),
                prefetched=prefetched,
                progress=0,
                progress_message=NONE,
                extended_seconds=0,
                update_time=now,
            )
        return claimed

    def finish(self, jobs: Sequence[Finished], worker: Worker, now: datetime) -> set[int]:
        """Leave it all to the careful way."""
        return set()

    def let_go(self, jobs: Iterable[tuple[int, int]], worker: Worker, now: datetime) -> set[int]:
        """Leave it all to the careful way."""
        return set()

    def fail(
        self,
        failed: Sequence[Failing],
        concluded: Sequence[Concluded],
        worker: Worker,
        now: datetime,
    ) -> set[int]:
        """Leave it all to the careful way."""
        return set()

    def failures(self, ids: Sequence[int]) -> dict[int, int]:
        """One SELECT."""
        last = Attempt.objects.filter(job=OuterRef("pk")).order_by("-attempt")
        rows = Job.objects.using(self.using).filter(pk__in=ids).order_by()
        counted = rows.values_list("pk", Subquery(last.values("failures")[:1]))
        return {pk: count or 0 for pk, count in counted}

    def settle(
        self,
        messages: Sequence[Message],
        now: datetime,
        *,
        handled: bool,
        job_id: int | None = None,
    ) -> list[Settled]:
        """Leave it all to the careful way."""
        return []

    def lock_live(self, instance: str, keys: Iterable[tuple[str, str]]) -> None:
        """Leave it to the careful way."""

    def name_and_key(self, job_id: int) -> tuple[str, str] | None:
        """One SELECT."""
        rows = Job.objects.using(self.using).filter(pk=job_id)
        return rows.values_list("job_type__name", "job_key").first()

    def insert_one(self, job: Job) -> None:
        """Django's save: only PostgreSQL tells versions of rows."""
        job.save(force_insert=True, using=self.using)

    def insert(self, jobs: Iterable[Job], count: int, *, by_key: bool) -> list[Job]:
        """Django's bulk_create."""
        return Job.objects.using(self.using).bulk_create(jobs)
