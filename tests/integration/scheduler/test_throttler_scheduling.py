"""Throttlers at work in the scheduler: shares, limits per key, held jobs."""

from __future__ import annotations

from collections import Counter
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


def by_region() -> Counter[str]:
    return Counter(data["region"] for data in running())


# The shipped ones


def test_each_region_starts_its_share_of_the_limit(
    configure_queue: ConfigureQueue, start: Any
) -> None:
    """T23: limit 20, east 40 %, north 30 %, west 30 %."""
    configure_queue(REGIONS, THROTTLE_LIMIT=20)
    enqueue(*regions(east=30, north=30, west=30))

    start()
    start()

    assert by_region() == {"east": 8, "north": 6, "west": 6}


def test_the_readmes_case_of_a_hundred(configure_queue: ConfigureQueue) -> None:
    """T23: limit 100."""
    configure_queue(REGIONS, THROTTLE_LIMIT=100)
    enqueue(*regions(east=200, west=200, north=200))

    HandWorker().work()

    assert by_region() == {"east": 40, "north": 30, "west": 30}


def test_no_region_takes_what_another_leaves(configure_queue: ConfigureQueue, start: Any) -> None:
    """T23."""
    configure_queue(REGIONS, THROTTLE_LIMIT=10)
    enqueue(*regions(east=30))

    start()

    assert by_region() == {"east": 4}


def test_each_tenant_has_its_own_limit(configure_queue: ConfigureQueue, start: Any) -> None:
    configure_queue(hipq.KeyLimit("tenant", 2))
    enqueue(*[{"tenant": name} for name in "aaaabbbbc"])

    start()

    assert Counter(data["tenant"] for data in running()) == {"a": 2, "b": 2, "c": 1}


def test_two_throttlers_must_agree(configure_queue: ConfigureQueue, start: Any) -> None:
    configure_queue(hipq.KeyLimit("tenant", 1), hipq.KeyLimit("region", 1))
    enqueue(*[{"tenant": t, "region": r} for t, r in ("ax", "ay", "bx", "by")])

    start()

    assert running() == [{"tenant": "a", "region": "x"}, {"tenant": "b", "region": "y"}]


def test_a_limit_holds_beside_a_throttler(configure_queue: ConfigureQueue, start: Any) -> None:
    configure_queue(hipq.KeyLimit("tenant", 2), THROTTLE_LIMIT=3)
    enqueue(*[{"tenant": name} for name in "aaabbbccc"])

    start()

    assert [data["tenant"] for data in running()] == ["a", "a", "b"]


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


def test_a_held_job_does_not_block_those_behind_it(
    configure_queue: ConfigureQueue, start: Any
) -> None:
    configure_queue(hold_data("held"), THROTTLE_LIMIT=2)
    enqueue("held", "held", "free", "free", "free")

    start()

    assert running() == ["free", "free"]


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


def test_until_idle_means_that_all_jobs_behind_the_held_ones_have_run(
    configure_queue: ConfigureQueue,
) -> None:
    configure_queue(hold_data("held"))
    enqueue(*["held"] * (PAGE_SIZE * MAX_PAGES + 100), "free")

    run_due_jobs()

    assert running() == ["free"]


def test_what_was_held_at_the_head_runs_first_when_it_may_start(
    configure_queue: ConfigureQueue,
) -> None:
    configure_queue(hold_data("held"))
    enqueue(*["held"] * (PAGE_SIZE * MAX_PAGES + 100))
    worker = HandWorker(threads=2)
    worker.work()
    first = list(Job.objects.order_by("rank", "pk").values_list("pk", flat=True)[:2])

    configure_queue(hold_data("nothing"))
    started = worker.work()

    assert [job.pk for job in started] == first


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


def test_what_was_looked_through_in_vain_is_not_asked_about_again_at_once(asked: list[int]) -> None:
    enqueue("held", "held")
    worker = HandWorker()

    worker.run_pass()
    worker.run_pass()

    assert asked == [2]
    assert worker.scheduler.found_nothing


def test_it_is_asked_about_again_when_a_commit_woke_the_worker(asked: list[int]) -> None:
    enqueue("held")
    worker = HandWorker()
    worker.run_pass()

    worker.scheduler.rotation.put_first("default")
    worker.run_pass()

    assert len(asked) > 1


def test_it_is_asked_about_again_when_the_limit_is_another(asked: list[int]) -> None:
    enqueue("held")
    worker = HandWorker()
    worker.run_pass()

    Queue.objects.update(throttle_limit=9)
    worker.run_pass()

    assert len(asked) == 2


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
