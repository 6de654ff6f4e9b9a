"""Throttlers at work in the scheduler: shares, limits per key, held jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import pytest
from django.db import connection

import hipq_django as hipq
from hipq_django.domain.throttling import Candidate, RunningJob, Verdict
from hipq_django.models import Job, Queue
from hipq_django.scheduler import polling
from hipq_django.scheduler.admission import MAX_PAGES
from hipq_django.scheduler.context import PAGE_SIZE
from tests.hand_worker import HandWorker
from tests.integration.conftest import ConfigureQueue
from tests.running import run_due_jobs

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]

REGIONS = hipq.ShareLimit("region", {"east": 0.4, "north": 0.3, "west": 0.3})


def enqueue(*data: Any, **options: Any) -> list[Job]:
    return hipq.enqueue_many([hipq.NewJob("ask", item, **options) for item in data])


def regions(**counts: int) -> list[dict[str, str]]:
    return [{"region": name} for name, count in counts.items() for _ in range(count)]


def running() -> list[Any]:
    return [job.job_data for job in Job.objects.running().order_by("pk")]


# The shipped ones


def tenants(names: str) -> list[dict[str, str]]:
    return [{"tenant": name} for name in names]


PAIRS = [{"tenant": tenant, "region": region} for tenant in "ab" for region in "xy"]


@pytest.mark.parametrize(
    ("throttlers", "limit", "data", "started"),
    [
        ([REGIONS], 20, regions(east=30, north=30, west=30), regions(east=8, north=6, west=6)),
        ([REGIONS], 10, regions(east=30), regions(east=4)),  # it leaves the shares of others
        ([hipq.KeyLimit("tenant", 2)], 0, tenants("aaaabbbbc"), tenants("aabbc")),
        ([hipq.KeyLimit("tenant", 2)], 3, tenants("aaabbbccc"), tenants("aab")),
        ([hipq.KeyLimit("tenant", 1), hipq.KeyLimit("region", 1)], 0, PAIRS, [PAIRS[0], PAIRS[3]]),
    ],
)
def test_as_many_start_as_all_throttlers_and_the_limit_let_start(
    configure_queue: ConfigureQueue,
    start: Any,
    throttlers: list[Any],
    limit: int,
    data: list[Any],
    started: list[Any],
) -> None:
    """T23: each of the shares in full, and no other."""
    configure_queue(*throttlers, THROTTLE_LIMIT=limit)
    enqueue(*data)

    start()
    start()

    assert running() == started


def test_a_throttler_sees_what_runs(configure_queue: ConfigureQueue) -> None:
    seen: list[tuple[list[RunningJob], list[Any]]] = []

    def look(queue: Queue, now: datetime, running: Any, candidates: Any) -> list[Verdict]:
        seen.append((list(running), [c.job_data for c in candidates]))
        return [hipq.Run()] * len(candidates)

    configure_queue(look)
    hipq.enqueue("ask", {"n": 1}, job_key="k", throttle_factor=2)
    run_due_jobs()
    enqueue({"n": 2})
    run_due_jobs()

    (load,) = seen[-1][0]
    assert (load.job_type, load.job_key, load.job_data) == ("ask", "k", {"n": 1})
    assert load.throttle_factor == 2
    assert seen[-1][1] == [{"n": 2}]


def one_per_tenant(queue: Queue, now: datetime, running: Any, candidates: Any) -> list[Verdict]:
    """Count jobs, not factors, as a project's own throttler may."""
    busy = {load.job_data["tenant"] for load in running}
    verdicts: list[Verdict] = []
    for candidate in candidates:
        tenant = candidate.job_data["tenant"]
        verdicts.append(hipq.Hold("busy") if tenant in busy else hipq.Run())
        busy.add(tenant)
    return verdicts


def test_a_throttler_sees_what_was_admitted_a_moment_ago(configure_queue: ConfigureQueue) -> None:
    """Also where a critical job is looked for behind a heavy one."""
    configure_queue(one_per_tenant, THROTTLE_LIMIT=2)
    for tenant, factor in [("a", 1), ("b", 2), ("a", 0)]:
        hipq.enqueue("ask", {"tenant": tenant}, throttle_factor=factor)

    HandWorker().work()

    assert running() == [{"tenant": "a"}]


# Held jobs


def hold_data(wanted: str) -> Callable[..., list[Verdict]]:
    """Return a throttler that holds all jobs with this data."""

    def throttler(
        queue: Queue, now: datetime, running: Sequence[RunningJob], candidates: Sequence[Candidate]
    ) -> list[Verdict]:
        return [hipq.Hold("wait") if c.job_data == wanted else hipq.Run() for c in candidates]

    return throttler


def test_a_held_job_is_neither_tried_nor_failed(configure_queue: ConfigureQueue) -> None:
    """T24."""
    configure_queue(hold_data("held"))
    (job,) = enqueue("held")
    before = Job.objects.filter(pk=job.pk).values().get()

    run_due_jobs()

    assert Job.objects.filter(pk=job.pk).values().get() == before


@pytest.mark.parametrize("held", [PAGE_SIZE + 1, PAGE_SIZE * MAX_PAGES + 100])
def test_any_number_of_held_jobs_at_the_head_blocks_nobody(
    configure_queue: ConfigureQueue, held: int
) -> None:
    configure_queue(hold_data("held"))
    enqueue(*["held"] * held, "free")
    worker = HandWorker()

    for _ in range(3):
        worker.work()

    assert running() == ["free"]


# How often, and at what cost, held jobs are looked through


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, configure_queue: ConfigureQueue) -> list[int]:
    """How many candidates a throttler was asked about that holds all; each look takes long."""
    asked: list[int] = []

    def hold_all(queue: Queue, now: datetime, running: Any, candidates: Any) -> list[Verdict]:
        asked.append(len(candidates))
        return [hipq.Hold("wait")] * len(candidates)

    configure_queue(hold_all)
    monkeypatch.setattr(polling, "QUICK_SECONDS", -1.0)
    monkeypatch.setattr(polling, "MAX_SECONDS", 3_600.0)
    monkeypatch.setattr(polling, "SCAN_SHARE", 1e-9)
    return asked


@pytest.mark.parametrize(
    ("happen", "again"),
    [
        (lambda worker: None, False),
        (lambda worker: worker.scheduler.rotation.put_first("default"), True),
    ],
    ids=["nothing", "a commit woke the worker"],
)
def test_what_was_looked_through_in_vain_is_asked_about_again_when_something_has_happened(
    asked: list[int], happen: Callable[[HandWorker], Any], again: bool
) -> None:
    enqueue("held", "held")
    worker = HandWorker()
    worker.run_pass()

    happen(worker)
    worker.run_pass()

    assert (len(asked) > 1) is again
    assert worker.scheduler.found_nothing


def test_it_is_asked_about_again_when_a_job_of_the_worker_has_ended(
    monkeypatch: pytest.MonkeyPatch, configure_queue: ConfigureQueue
) -> None:
    monkeypatch.setattr(polling, "QUICK_SECONDS", -1.0)
    monkeypatch.setattr(polling, "SCAN_SHARE", 1e-9)
    monkeypatch.setattr(polling, "MAX_SECONDS", 3_600.0)
    configure_queue(hipq.KeyLimit("tenant", 1))
    hipq.enqueue_many([hipq.NewJob("echo", {"tenant": "a", "n": n}) for n in range(2)])
    worker = HandWorker()
    worker.run_pass()
    worker.run_pass()
    worker.execute()

    (job,) = worker.run_pass()

    assert job.job_data["n"] == 1


@pytest.mark.postgres
@pytest.mark.parametrize("limit", [0, 5])
def test_held_jobs_are_not_locked(asked: list[int], limit: int) -> None:
    """Each lock would be written to the log of the database, for each job and worker."""
    Queue.objects.update(throttle_limit=limit)
    (job,) = enqueue("held")

    HandWorker().run_pass()

    assert asked == [1]
    with connection.cursor() as cursor:
        cursor.execute("SELECT xmax FROM hipq_job WHERE id = %s", [job.pk])
        assert str(cursor.fetchone()[0]) == "0"
