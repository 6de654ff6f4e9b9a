"""The hot statements by Django's ORM: the reference, and all that other databases need."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from functools import reduce
from operator import or_
from typing import Any

from django.db import IntegrityError, connections, transaction
from django.db.models import (
    BigIntegerField,
    Case,
    Exists,
    F,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
    TextField,
    Value,
    When,
)
from django.db.models.functions import Cast, Coalesce
from django.db.models.lookups import StartsWith

from hipq_django.database.errors import is_duplicate
from hipq_django.database.locks import locked, takes_writers_together
from hipq_django.database.transactions import bound_silence
from hipq_django.domain.drafts import IncomingAnswer
from hipq_django.domain.ordering import MAX_RANK
from hipq_django.domain.states import NONE, State
from hipq_django.domain.suspects import SUSPECT
from hipq_django.domain.throttling import RunningJob, Throttler
from hipq_django.engines.rows import is_same, keys_of
from hipq_django.engines.values import (
    CLAIMED,
    FIRST,
    ClaimRequest,
    Concluded,
    DuePage,
    EarlyPlace,
    Failing,
    Finished,
    QueueWork,
    ScanBounds,
    SettledJob,
    Which,
)
from hipq_django.models import Answer, Attempt, Job, Queue, Schedule, ScheduleRun, Worker

_RESERVE_IDS = """
    SELECT nextval(pg_get_serial_sequence('hipq_job', 'id')) FROM generate_series(1, %s)"""


class Engine:
    """The statements on one database alias; each method is one, or a few, for a whole batch.

    Here they use Django's ORM. They are the reference: what another engine does in one round trip,
    these do too, or they leave it to the code that goes row by row.
    """

    claims_in_sql = False
    """Whether `claim_due` and `finish_and_claim` can be called."""

    def __init__(self, using: str) -> None:
        self.using = using

    def probe_queues(
        self, worker: Worker, now: datetime, known: Mapping[int, ScanBounds]
    ) -> list[QueueWork]:
        """Return the queues of a worker by id, with the work of each; no locks.

        In a limited queue without room only critical jobs count as due, and in a strict one also if
        the first due job may not fit. `known` is by the queues' ids.
        """
        jobs = Job.objects.using(self.using).filter(queue=OuterRef("pk"))
        whens = [When(pk=pk, then=Value(high)) for pk, (high, _, _) in known.items()]
        due = jobs.due(now).filter(rank__lte=OuterRef("high"))
        running = jobs.running().order_by().values("queue")
        load = Subquery(running.values(total=Sum("throttle_factor")))
        has_room = Q(throttle_limit__lt=1) | Q(room__gt=Coalesce(load, Decimal(0)))
        rows = self._served_by(worker).annotate(
            high=Case(*whens, default=Value(MAX_RANK), output_field=BigIntegerField()),
            room=Coalesce("share", "throttle_limit"),
        )
        rows = rows.annotate(
            has_due=Case(
                When(has_room, then=Exists(due)), default=Exists(due.filter(throttle_factor=0))
            ),
            is_in_need=Case(When(share__isnull=False, then=Exists(due)), default=False),
            has_response=Exists(jobs.awaiting_response_handler()),
            has_error=Exists(jobs.in_error().filter(worker=None)),
        )
        return [_work_of(queue) for queue in rows.order_by("pk")]

    def has_overdue(self, instance: str, now: datetime) -> bool:
        """Return False if no running job of the instance is past its deadline."""
        return True

    def has_early(self, instance: str) -> bool:
        """Return False if no early answer of the instance waits for a job."""
        return True

    def early_page(
        self, instance: str, after: EarlyPlace, limit: int
    ) -> tuple[list[EarlyPlace], EarlyPlace | None]:
        """Read the next early answers that no job has, in the order of their keys.

        Return those whose job is there by now, or is final, and the last one that was read; None if
        there are no more.
        """
        name, key, pk = after
        behind = Q(job_key__gt=key) | Q(job_key=key, pk__gt=pk)
        early = self._early(instance).filter(Q(job_type__gt=name) | Q(job_type=name) & behind)
        rows = early.order_by("job_type", "job_key", "pk")
        page = list(rows.values_list("job_type", "job_key", "pk", "has_job")[:limit])
        places = [EarlyPlace(*row[:3]) for row in page if row[3]]
        return places, EarlyPlace(*page[-1][:3]) if len(page) == limit else None

    def new_early(self, instance: str, after: int, limit: int) -> list[int]:
        """Read the newest such answers with greater ids; return those whose job is there."""
        rows = self._early(instance).filter(pk__gt=after).order_by("-pk")
        return [pk for pk, has_job in rows.values_list("pk", "has_job")[:limit] if has_job]

    def lock(self, queue: Queue, worker: Worker) -> Queue | None:
        """Lock a queue and read its row again; return None if it is gone or locked by another.

        The database may end the lock of a worker that falls silent.
        """
        bound_silence(self.using)
        row = Queue.objects.using(self.using).filter(pk=queue.id)
        return locked(row, skip_locked=True).first()

    def first_page(self, queue: Queue, now: datetime, limit: int, which: Which = FIRST) -> DuePage:
        """Return the first due jobs of a locked queue, as `due`, and its load.

        Everything that was committed before the queue was locked is visible.
        """
        jobs = queue.jobs.using(self.using)
        load, critical = jobs.load(), jobs.due(now).filter(throttle_factor=0)
        return DuePage(self.due(queue, now, limit, which), load, critical.exists())

    def running(self, queue: Queue, throttlers: Sequence[Throttler]) -> list[RunningJob]:
        """Return what these throttlers see of the queue's running jobs."""
        rows = queue.jobs.using(self.using).running()
        fields = ("job_type__name", "job_key", "job_data", "throttle_factor")
        return [RunningJob(*row) for row in rows.values_list(*fields)]

    def due(self, queue: Queue, now: datetime, limit: int, which: Which = FIRST) -> list[Job]:
        """Return due jobs in their order, locked unless `which` says otherwise.

        They begin at the queue's low-water mark. For a queue that had no limit, return none if it
        was paused or given a limit since it was read.
        """
        rows = queue.jobs.using(self.using).due(now)
        rows = rows.filter(rank__range=(queue.low_water_mark, queue.high_water_mark(now)))
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
        """Lock and return those of the waiting jobs that are unchanged since they were read.

        Rows that others have locked are skipped.
        """
        rows = Job.objects.using(self.using).waiting().filter(pk__in=[job.id for job in jobs])
        now = {job.id: job for job in locked(rows.order_by("pk"), skip_locked=True)}
        return [now[job.id] for job in jobs if job.id in now and is_same(job, now[job.id])]

    def claim_due(
        self, queues: Sequence[Queue], worker: Worker, now: datetime, wanted: ClaimRequest
    ) -> list[Job]:
        """Claim the first due jobs of queues without a limit that are claimable in SQL.

        Return them in order: the queues in turn, from each its jobs from its low-water mark on.

        A job is *not claimable in SQL* if it has time windows, lost its worker, has an early answer
        or is of an unknown type; the claim ends before it, and goes on with the next queue. It may
        return fewer jobs, or none: the others go by `lock`, `first_page` or `due`, and `claim`. A
        lost worker gets none.
        """
        raise NotImplementedError

    def finish_and_claim(
        self,
        done: Sequence[Finished],
        queue: Queue,
        worker: Worker,
        now: datetime,
        wanted: ClaimRequest,
    ) -> tuple[set[int], list[Job]]:
        """Do what `finish` does, then claim from a limited queue as `claim_due`; all or nothing.

        Return the ids and the claimed jobs. The queue is locked first; the claim ends before the
        first job that does not fit, and there is none while critical jobs are due.
        """
        raise NotImplementedError

    def claim(self, jobs: Sequence[Job], worker: Worker, now: datetime) -> int:
        """Write that these locked waiting jobs run; return how many. Their copies have the values.

        Return 0 if the worker was declared lost.
        """
        claimed = 0
        groups: dict[Any, list[int]] = {}
        for job in jobs:
            groups.setdefault((job.timeout, job.prefetched), []).append(job.id)
        for (timeout, prefetched), ids in groups.items():
            rows = Job.objects.using(self.using).filter(worker.is_live(), pk__in=ids)
            claimed += rows.waiting().update(
                **CLAIMED,
                worker=worker,
                last_worker_id=worker.id,
                attempt=F("attempt") + 1,
                deadline=now + timedelta(seconds=timeout),
                prefetched=prefetched,
                update_time=now,
            )
        return claimed

    def finish(self, jobs: Sequence[Finished], worker: Worker, now: datetime) -> set[int]:
        """Make jobs final that the worker still owns and that were not answered; return their ids.

        It may return fewer than it could: the others, for example those that another transaction
        has locked, are written row by row.
        """
        return set()

    def park(self, jobs: Iterable[tuple[int, int]], worker: Worker, now: datetime) -> set[int]:
        """Let jobs (id, attempt) wait for their answer; return the ids, or fewer, as `finish`."""
        return set()

    def fail(
        self, failed: Sequence[Failing], follows: Sequence[Concluded], worker: Worker, now: datetime
    ) -> set[int]:
        """Write failed attempts, and what follows errors: these, or earlier ones.

        Return the ids, or fewer, as `finish`.
        """
        return set()

    def failures(self, ids: Sequence[int]) -> dict[int, int]:
        """Return how many attempts of each of these jobs have failed."""
        last = Attempt.objects.filter(job=OuterRef("pk")).order_by("-attempt")
        rows = Job.objects.using(self.using).filter(pk__in=ids).order_by()
        counted = rows.values_list("pk", Subquery(last.values("failures")[:1]))
        return {pk: count or 0 for pk, count in counted}

    def settle(
        self,
        messages: Sequence[IncomingAnswer],
        now: datetime,
        *,
        handled: bool,
        job_id: int | None = None,
    ) -> list[SettledJob]:
        """Store responses as accepted, and settle by them the jobs that wait for exactly these.

        Those are jobs without an owner that wait for one answer and never got any. They become
        final or, with `handled`, wait for their response handler. Without it, those are left of
        whose type the row says that it has one. The messages are for one job type
        and have different keys; or there is one, for its attempt of the job with an id. Return the
        settled jobs, not necessarily all; a message whose id is known raises `IntegrityError`.
        The workers of the jobs' queues are woken as by `wake_workers`.
        """
        return []

    def lock_jobs_by_key(self, instance: str, keys: Iterable[tuple[str, str]]) -> None:
        """Lock the live jobs with these job types and keys, in the order of their ids.

        Where only one transaction writes at a time, there is nothing to lock.
        """
        if not takes_writers_together(self.using):
            return
        by_type = defaultdict[str, list[str]](list)
        for name, key in keys:
            by_type[name].append(key)
        named = (Q(job_type__name=name, job_key__in=found) for name, found in by_type.items())
        rows = Job.objects.using(self.using).live().keyed().filter(job_type__instance=instance)
        list(locked(rows.filter(reduce(or_, named)).order_by("pk").values_list("pk")))

    def type_and_key_of(
        self, job_id: int, create_time: datetime | None = None
    ) -> tuple[str, str] | None:
        """Return the name of a job's type and the job's key; None if there is no such job.

        Where `create_time` is given, a job of another time is not the one that is meant.
        """
        rows = Job.objects.using(self.using).filter(pk=job_id)
        if create_time is not None:
            rows = rows.filter(create_time=create_time)
        return rows.values_list("job_type__name", "job_key").first()

    def insert_one(self, job: Job) -> bool:
        """Insert a new job and give it its id; return whether it was inserted.

        It is not if another job has its key, or if its job type or that type's queue has changed
        since the versions that the job type names were read.
        """
        try:
            with transaction.atomic(using=self.using):
                job.save(force_insert=True, using=self.using)
        except IntegrityError as error:
            if not is_duplicate(error):
                raise
            job.id = None  # type: ignore[assignment]  # as that of a job that was never saved
            return False
        return True

    def insert(
        self, jobs: Iterable[Job], count: int, *, by_key: bool, extra: bool = False
    ) -> list[Job]:
        """Insert `count` new jobs in the caller's transaction; return them with their ids.

        The ids grow in the order of the jobs. `jobs` may be created one by one while they are
        inserted. `by_key` is for jobs with keys: they are inserted in the order of their keys, so
        that two batches with the same keys cannot deadlock. `extra` is for jobs of which some have
        values in the columns that are NULL in most.
        """
        rows = list(jobs)
        Job.objects.using(self.using).bulk_create(self._by_key(rows) if by_key else rows)
        return rows

    def insert_free(self, jobs: Sequence[Job]) -> None:
        """Do the same by key, without the jobs whose key another job has: they get no id."""
        for job in self._by_key(jobs):
            self.insert_one(job)

    def _by_key(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """Return jobs in the order of their keys, with reserved ids that grow in their own order.

        Where only one transaction writes at a time, the order does not matter.
        """
        if not takes_writers_together(self.using):
            return jobs
        with connections[self.using].cursor() as cursor:
            cursor.execute(_RESERVE_IDS, [len(jobs)])
            for job, (pk,) in zip(jobs, cursor.fetchall(), strict=True):
                job.id = pk
        return sorted(jobs, key=keys_of)

    def insert_runs(self, runs: Sequence[ScheduleRun]) -> None:
        """Insert what became of due times, in the caller's transaction; they get no ids."""
        ScheduleRun.objects.using(self.using).bulk_create(runs)

    def move_on(self, schedules: Sequence[int], next_time: datetime | None, now: datetime) -> None:
        """Give schedules that were fired, by their ids, the time when they are due next."""
        rows = Schedule.objects.using(self.using).filter(pk__in=schedules)
        rows.update(next_time=next_time, problem=NONE, update_time=now)

    def wake_workers(self, instance: str, queues: Iterable[int]) -> None:
        """After the commit, wake workers that wait for jobs of queues, if the database can do that.

        The queues of an instance are given by their ids.
        """

    def _served_by(self, worker: Worker) -> QuerySet[Queue]:
        queues = Queue.objects.using(self.using).filter(instance=worker.instance)
        if worker.queues:
            return queues.filter(name__in=worker.queues)
        return queues.exclude(name__in=worker.excluded_queues)

    def _early(self, instance: str) -> Any:
        jobs = Job.objects.using(self.using).filter(
            job_type__instance=instance,
            job_type__name=OuterRef("job_type"),
            job_key=OuterRef("job_key"),
        )
        answers = Answer.objects.using(self.using).filter(instance=instance, job=None)
        return answers.filter(status=Answer.Status.EARLY).annotate(has_job=Exists(jobs.keyed()))


def _work_of(queue: Any) -> QueueWork:
    """Return the work of a queue that `probe_queues` has found."""
    first_rank = -MAX_RANK if queue.has_due else None
    is_hungry = queue.is_in_need and not queue.has_due
    return QueueWork(queue, first_rank, queue.has_response, queue.has_error, is_hungry)
