"""Both implementations of the hot path say the same on the same rows."""

from collections.abc import Collection
from datetime import timedelta
from decimal import Decimal

import pytest
from django.db import connections
from django.utils import timezone

import hipq_django as hipq
from hipq_django import hotpath
from hipq_django.hotpath import hot_path
from hipq_django.hotpath.base import HotPath
from hipq_django.hotpath.orm import OrmPath
from hipq_django.hotpath.sql import SqlPath
from hipq_django.models import Job, Queue, Worker
from hipq_django.ranking import Order
from hipq_django.testing import run_due_jobs

pytestmark = pytest.mark.django_db


@pytest.fixture(params=["orm", "sql"])
def path(request: pytest.FixtureRequest) -> HotPath:
    """The implementation under test."""
    made = hot_path("default") if request.param == "sql" else OrmPath("default")
    assert isinstance(made, SqlPath if request.param == "sql" else OrmPath)
    return made


@pytest.fixture
def worker() -> Worker:
    return Worker.objects.create(name="w")


def add(number: int = 1, **options: object) -> list[Job]:
    """Enqueue jobs of a type that nobody declares."""
    return [hipq.enqueue("anything", {"n": n}, **options) for n in range(number)]  # type: ignore[arg-type]


def looked(path: HotPath, queue: Queue) -> tuple[bool, bool, bool]:
    """Return what a look sees in a queue that it knows."""
    now = timezone.now()
    [busy] = path.look("default", [queue.name], now, {queue.pk: queue.ordering.last_due_rank(now)})
    return bool(busy.has_due), bool(busy.has_response), bool(busy.has_error)


def test_an_empty_queue_has_nothing_to_do(path: HotPath) -> None:
    queue = Queue.objects.create(name="q")

    assert looked(path, queue) == (False, False, False)


@pytest.mark.parametrize("order", Order.values)
def test_a_look_sees_due_jobs_and_no_future_ones(path: HotPath, order: str) -> None:
    queue = Queue.objects.create(name="q", order=order)
    add(queue="q", scheduled_run_time=timezone.now() + timedelta(hours=1), priority=-1_000_000)

    before = looked(path, queue)
    add(queue="q", priority=1_000_000)

    assert (before[0], looked(path, queue)[0]) == (False, True)


def test_a_full_queue_has_nothing_due_but_critical_jobs(path: HotPath, worker: Worker) -> None:
    queue = Queue.objects.create(name="q", throttle_limit=2)
    jobs = add(3, queue="q", throttle_factor=1)
    claim(path, jobs[:2], worker)

    full = looked(path, queue)
    add(queue="q", throttle_factor=0)

    assert (full[0], looked(path, queue)[0]) == (False, True)
    assert path.load(queue) == 2


def test_a_look_sees_responses_and_errors_in_nobodys_hands(path: HotPath, worker: Worker) -> None:
    queue = Queue.objects.create(name="q")
    answered, failed = add(2, queue="q")
    claim(path, [answered, failed], worker)
    Job.objects.filter(pk=answered.pk).update(answered=True)
    Job.objects.filter(pk=failed.pk).update(state="error", error="broken", work="decision")
    in_hand = looked(path, queue)

    Job.objects.update(worker=None, work="NONE")

    assert (in_hand, looked(path, queue)) == ((False, False, False), (False, True, True))


def test_due_jobs_come_in_their_order_behind_a_place_without_some_types(path: HotPath) -> None:
    queue = Queue.objects.create(name="q")
    jobs = add(5, queue="q")
    jobs[3:] = [hipq.enqueue("other", queue="q", priority=1)]
    first, *rest = sorted(Job.objects.all(), key=lambda j: (j.rank, j.pk))

    now = timezone.now() + timedelta(seconds=1)
    everything = path.due(queue, now, 10)
    behind = path.due(queue, now, 2, after=(first.rank, first.pk))
    known = path.due(queue, now, 10, without_types=[jobs[3].job_type_id])

    assert everything == [first, *rest]
    assert behind == rest[:2]
    assert jobs[3] not in known
    assert [job.job_data for job in everything if job in jobs[:3]] == [{"n": n} for n in range(3)]


def test_only_critical_jobs_are_found_where_only_they_are_wanted(path: HotPath) -> None:
    queue = Queue.objects.create(name="q")
    add(2, queue="q")
    critical = add(2, queue="q", throttle_factor=0)

    assert path.due(queue, timezone.now() + timedelta(seconds=1), 10, critical=True) == critical


def test_a_claim_writes_what_the_copies_say(path: HotPath, worker: Worker) -> None:
    jobs = [*add(2, timeout=10), *add(1, timeout=20)]
    now = timezone.now()

    claim(path, jobs, worker, prefetched={jobs[1].pk})

    rows = Job.objects.order_by("pk")
    assert [(r.state, r.attempt, r.worker, r.error) for r in rows] == [
        ("running", 1, worker, "NONE")
    ] * 3
    assert [r.prefetched for r in rows] == [False, True, False]
    assert [round((r.deadline - now).total_seconds()) for r in rows] == [10, 10, 20]


def test_only_jobs_still_in_hand_are_finished_or_let_go(worker: Worker) -> None:
    path, other = hot_path("default"), Worker.objects.create(name="other")
    jobs = add(5)
    claim(path, jobs, worker)
    Job.objects.filter(pk=jobs[1].pk).update(answered=True)
    Job.objects.filter(pk=jobs[2].pk).update(worker=other)
    done = [(j.pk, 1, {"ok": [None, 1.5]}, True) for j in jobs[:3]]

    finished = path.finish([*done, (jobs[3].pk, 2, None, True)], worker, timezone.now())
    waiting = path.let_go([(jobs[4].pk, 1), (jobs[2].pk, 1)], worker, timezone.now())

    assert (finished, waiting) == ({jobs[0].pk}, {jobs[4].pk})
    jobs[0].refresh_from_db()
    assert (jobs[0].outcome, jobs[0].result) == ("succeeded", {"ok": [None, 1.5]})


def test_the_sum_of_factors_is_exact(path: HotPath, worker: Worker) -> None:
    queue = Queue.objects.create(name="q", throttle_limit=1)
    claim(path, add(10, queue="q", throttle_factor=0.1), worker)

    assert path.load(queue) == Decimal(1)
    assert looked(path, queue)[0] is False


def test_the_orm_alone_runs_jobs_to_their_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hotpath, "DIALECTS", {})
    assert isinstance(hot_path("default"), OrmPath), connections["default"].vendor
    jobs = hipq.enqueue_many(hipq.NewJob("echo", {"n": n}) for n in range(20))

    assert run_due_jobs() == len(jobs)
    assert Job.objects.filter(outcome="succeeded").count() == len(jobs)


def claim(
    path: HotPath, jobs: list[Job], worker: Worker, *, prefetched: Collection[int] = ()
) -> None:
    """Claim jobs as the scheduler does."""
    now = timezone.now()
    for job in jobs:
        job.deadline = now + timedelta(seconds=job.timeout)
        job.prefetched = job.pk in prefetched
    path.claim(jobs, worker, now)
