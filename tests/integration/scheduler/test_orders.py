"""Which job is next: the three orders, and what changes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import hipq_django as hipq
from hipq_django.conf.instances import get_instance
from hipq_django.database import clock
from hipq_django.domain.ordering import HELD_RANK, MAX_RANK
from hipq_django.engines import engine_for
from hipq_django.job_types.job_type import JobTypeSpec
from hipq_django.maintenance import reranking
from hipq_django.models import Job, Queue
from tests.declaring import Declare
from tests.hand_worker import HandWorker
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db

started: list[Any] = []


@pytest.fixture(autouse=True)
def note(declare: Declare) -> JobTypeSpec:
    """A type that writes down the order in which its jobs start."""
    started.clear()
    return declare("note")(lambda job: started.append(job.job_data))


def ordered(order: str, **options: Any) -> Queue:
    queue, _ = Queue.objects.update_or_create(name="default", defaults={"order": order, **options})
    return queue


def at(minute: int, *, seconds: float = 0) -> datetime:
    return datetime(2015, 3, 1, 10, minute, tzinfo=UTC) + timedelta(seconds=seconds)


def enqueue(*jobs: tuple[datetime, int]) -> None:
    for moment, priority in jobs:
        data = [f"{moment:%M}", priority]
        hipq.enqueue("note", data, scheduled_run_time=moment, priority=priority)


EXAMPLE = [(at(33), 100), (at(40), 7), (at(32), 700), (at(40), 1), (at(33), 50)]


@pytest.mark.parametrize(
    ("order", "seconds", "jobs", "priorities"),
    [
        ("time", 1, EXAMPLE, [700, 50, 100, 1, 7]),
        ("priority", 1, EXAMPLE, [1, 7, 50, 100, 700]),
        ("time", 1, [(at(33, seconds=s), p) for s, p in ((0.9, 1), (0.1, 2), (1, 0))], [1, 2, 0]),
        ("time", 60, [(at(33, seconds=59), 1), (at(33), 2), (at(34), 0)], [1, 2, 0]),
    ],
    ids=["the README's example", "priority first", "within a second", "a coarse granularity"],
)
def test_jobs_run_in_the_order_of_their_queue(
    order: str, seconds: int, jobs: list[tuple[datetime, int]], priorities: list[int]
) -> None:
    """T27: where times count as equal, the priority decides."""
    ordered(order, granularity_seconds=seconds)
    enqueue(*jobs)

    run_due_jobs()

    assert [priority for _, priority in started] == priorities


@pytest.mark.parametrize("order", Queue.Order.values)
def test_of_equal_jobs_the_older_is_first(order: str) -> None:
    """T27: a tie uses the id."""
    ordered(order)
    for number in range(5):
        hipq.enqueue("note", number, scheduled_run_time=at(0))

    run_due_jobs()

    assert started == [0, 1, 2, 3, 4]


def test_ageing_starves_nobody() -> None:
    """T28: nine points are worth nine minutes at 60 s each."""
    ordered("ageing", ageing_seconds=60, throttle_limit=1)
    enqueue((at(0), 10))
    enqueue(*((at(minute), 1) for minute in range(20)))

    run_due_jobs()

    assert started.index(["00", 10]) == 9


@pytest.mark.parametrize("order", Queue.Order.values)
def test_a_job_of_the_future_is_not_due_in_any_order(order: str) -> None:
    ordered(order)
    later = clock.now("default") + timedelta(seconds=30)
    hipq.enqueue("note", "later", scheduled_run_time=later, priority=-1_000_000)
    hipq.enqueue("note", "now", priority=1_000_000)

    run_due_jobs()

    assert started == ["now"]


# A changed order


@pytest.mark.parametrize(
    ("before", "after", "first"),
    [
        ("time", "priority", ["40", 1]),
        ("priority", "time", ["32", 700]),
        ("time", "ageing", ["40", 1]),
    ],
)
def test_a_changed_order_counts_for_waiting_jobs(before: str, after: str, first: Any) -> None:
    ordered(before)
    enqueue(*EXAMPLE)
    ordered(after)

    run_due_jobs()

    assert started[0] == first
    assert len(started) == 5


def ranks_fit(queue: Queue) -> list[bool]:
    return [
        job.rank == queue.ordering.rank(job.scheduled_run_time, job.priority)
        for job in queue.jobs.order_by("pk")
    ]


def test_ranks_are_written_anew_batch_by_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """How far it is stands in the database, so any worker goes on."""
    monkeypatch.setattr(reranking, "PAGE_SIZE", 2)
    monkeypatch.setattr(reranking, "SLICE_SECONDS", 0)
    enqueue(*EXAMPLE)
    queue = ordered("priority")

    changed = [reranking.continue_ranking(get_instance()) for _ in range(4)]

    assert changed == [2, 2, 1, 0]
    assert all(ranks_fit(queue))


def test_a_job_that_waits_for_others_gets_no_rank_of_the_changed_order() -> None:
    """It stays behind all that may run, and out of the way of claims."""
    before = hipq.enqueue("note", "before")
    held = hipq.enqueue("note", "held", after=[before])
    ordered("priority")

    changed = reranking.continue_ranking(get_instance())

    held.refresh_from_db()
    assert (changed, held.rank) == (1, HELD_RANK)


def test_due_jobs_are_found_while_their_ranks_are_still_those_of_the_former_order() -> None:
    ordered("priority")
    hipq.enqueue("note", "hidden otherwise")
    queue = ordered("time")
    rows = engine_for("default").due(queue, clock.now("default"), 10)

    assert [job.job_data for job in rows] == ["hidden otherwise"]


def test_a_stray_of_a_former_order_is_found() -> None:
    """Its transaction had read the former order and committed after the ranks were written."""
    hipq.enqueue("note", "lost")
    queue = Queue.objects.get(name="default")
    Job.objects.update(rank=MAX_RANK)
    assert queue.is_ranked
    before = run_due_jobs()

    found = reranking.find_strays(get_instance())

    assert (before, found, run_due_jobs()) == (0, 1, 1)


@pytest.mark.parametrize("limit", [0, 1])
def test_an_order_counts_for_the_first_claim_after_its_change(limit: int) -> None:
    """A worker that starts that moment claims in the new order, before any upkeep."""
    enqueue(*EXAMPLE)
    ordered("priority", throttle_limit=limit)

    claimed = HandWorker(threads=1).run_pass()

    assert [job.job_data for job in claimed] == [["40", 1]]
