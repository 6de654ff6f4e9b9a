"""Why is this job not running? The most decisive reason first."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.urls import reverse

import hipq_django as hipq
from hipq_django.database import clock
from hipq_django.models import Job, Queue, Worker
from tests.declaring import Declare
from tests.factories import JobFactory, QueueFactory, WorkerFactory
from tests.hand_worker import HandWorker
from tests.integration.conftest import ConfigureQueue
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _worker(frozen_time: Any) -> None:
    """Somebody serves the queues."""
    del frozen_time
    WorkerFactory.create()


def codes(job: Job) -> list[str]:
    return [reason.code for reason in hipq.explain(job)]


def text(job: Job) -> str:
    return str(hipq.explain(job)[0])


def test_a_job_whose_handler_executes_has_no_reason() -> None:
    job = hipq.enqueue("echo")
    HandWorker().run_pass()

    assert hipq.explain(job) == []


def test_a_due_job_that_nothing_holds_and_nobody_starts_says_so() -> None:
    since = clock.now("default") - timedelta(seconds=5)
    job = hipq.enqueue("echo", scheduled_run_time=since)
    just_made = codes(job)
    Job.objects.update(update_time=since)

    assert (just_made, codes(job)) == ([], ["late"])


def pause(job: Job) -> None:
    Queue.objects.update(paused=True)


def serve_another(job: Job) -> None:
    Worker.objects.update(queues=["other"])


def nothing(job: Job) -> None: ...


@pytest.mark.parametrize(
    ("name", "options", "then", "wanted", "said"),
    [
        ("echo", {}, nothing, [], ""),
        ("echo", {}, hipq.cancel, ["final"], "It is finished: cancelled at 2025-01-06 12:00:00 UT"),
        ("echo", {}, pause, ["paused"], "Queue default is paused."),
        ("echo", {}, serve_another, ["no_worker"], "start one: manage.py hipq_worker default."),
        ("echo", {"delay": 7_200}, nothing, ["scheduled"], "2025-01-06 14:00:00 UTC (in 2:00:00)"),
        (
            "nobody_knows",
            {},
            nothing,
            ["unknown_type"],
            "declares job type 'nobody_knows'.",
        ),
        ("echo", {"time_windows": ["05:00-07:00"]}, nothing, ["scheduled", "window"], "in 17:00"),
    ],
)
def test_a_waiting_job_says_what_holds_it(
    name: str, options: dict[str, Any], then: Callable[[Job], Any], wanted: list[str], said: str
) -> None:
    job = hipq.enqueue(name, **options)
    then(job)
    before = Job.objects.values().get()

    assert codes(job) == wanted
    assert said in " ".join(map(str, hipq.explain(job)))
    assert Job.objects.values().get() == before


def fail(job: Job) -> None:
    raise OSError("no route")


@pytest.mark.parametrize(
    ("policy", "raises", "why"),
    [
        (
            hipq.Fixed(seconds=0, max_attempts=3),
            False,
            "Fixed(max_attempts=3, seconds=0) gives up; failed attempts: 3.",
        ),
        (None, False, "it has no retry policy; failed attempts: 1."),
        (None, True, "its retry handler raised ValueError: Broken; failed attempts: 1."),
    ],
)
def test_a_failed_job_says_why_it_was_not_tried_again(
    declare: Declare, admin_client: Client, policy: Any, raises: bool, why: str
) -> None:
    declared = declare("charge", retry=policy)(fail)
    if raises:
        declared.on_error(raise_broken)
    job = hipq.enqueue("charge")
    run_due_jobs()

    page = admin_client.get(reverse("admin:hipq_job_change", args=[job.pk])).content.decode()
    assert codes(job) == ["final", "given_up"]
    assert str(hipq.explain(job)[1]) == f"It was not tried again, because {why}"
    assert f"It was not tried again, because {why}" in page


def raise_broken(job: Job) -> None:
    raise ValueError("Broken")


def test_a_job_that_waits_for_its_answer_says_until_when() -> None:
    job = hipq.enqueue("ask", timeout=3_600)
    run_due_jobs()

    assert codes(job) == ["waiting_for_answer"]
    assert "its answer has time until 2025-01-06 13:00:00 UTC (in 1:00:00)" in text(job)


def test_a_job_that_waits_for_jobs_that_it_gathers_names_those_that_are_left(
    declare: Declare,
) -> None:
    declare("film")(
        lambda job: job.gather([hipq.NewJob(kind, job_key=kind) for kind in ("echo", "ask")])
    )
    job = hipq.enqueue("film")
    run_due_jobs()

    left = Job.objects.get(job_key="ask")
    assert codes(job) == ["waits_for_jobs"]
    assert text(job) == f"It waits until these have ended: job {left.pk} (ask)."

    hipq.complete("ask", "ask")
    run_due_jobs()
    assert codes(job) == ["final"]


def test_an_answered_job_waits_for_a_worker(declare: Declare) -> None:
    declare("charge")(lambda job: hipq.WAIT).on_response(lambda job, response: None)
    job = hipq.enqueue("charge", job_key="k")
    run_due_jobs()
    hipq.complete("charge", "k")

    assert codes(job) == ["answered"]


def test_a_job_in_error_waits_for_its_retry_handler() -> None:
    job = hipq.enqueue("ask", job_key="k")
    run_due_jobs()
    hipq.fail("ask", "k", error="declined")

    assert codes(job) == ["error"]
    assert "declined" in text(job)


def test_a_job_that_was_claimed_ahead_says_by_whom() -> None:
    jobs = hipq.enqueue_many([hipq.NewJob("echo") for _ in range(2)])
    worker = HandWorker(threads=1, ahead=1)
    worker.run_pass()

    assert codes(jobs[1]) == ["prefetched"]
    assert worker.row.name in text(jobs[1])


@pytest.mark.parametrize("state", ["running", "stopping", "lost"])
def test_a_job_whose_worker_is_dead_says_which(state: str, frozen_time: Any) -> None:
    """One that executes, and one that was claimed ahead."""
    jobs = hipq.enqueue_many([hipq.NewJob("echo") for _ in range(2)])
    worker = HandWorker(threads=1, ahead=1)
    worker.run_pass()
    Worker.objects.filter(pk=worker.row.pk).update(state=state)
    frozen_time.shift(3_600)

    said = f"Worker {worker.row.name}, which has it, has sent no heartbeat lately."
    for job in jobs:
        assert (codes(job), text(job)) == (["silent_workers"], said)


# Limits and throttlers


def test_a_full_limit_is_named_with_its_numbers(configure_queue: ConfigureQueue) -> None:
    configure_queue(THROTTLE_LIMIT=2)
    hipq.enqueue("ask", throttle_factor=1.5)
    run_due_jobs()
    job = hipq.enqueue("ask", throttle_factor=0.75)

    assert codes(job) == ["limit"]
    assert "1.5 of 2 running" in text(job)
    assert "this job needs 0.75" in text(job)


def test_a_share_that_is_used_up_is_named_with_its_numbers() -> None:
    QueueFactory.create(name="ask", throttle_limit=9, share=2)
    job = hipq.enqueue("ask", queue="ask", throttle_factor=2.5)

    assert codes(job) == ["limit"]
    assert "this shard has of the limit of queue ask is used up: 0 of 2 running" in text(job)


@pytest.mark.conformance
def test_the_jobs_before_it_are_counted(configure_queue: ConfigureQueue) -> None:
    configure_queue(THROTTLE_LIMIT=10)
    hipq.enqueue_many([hipq.NewJob("ask") for _ in range(3)])
    job = hipq.enqueue("ask")

    assert codes(job) == ["behind"]
    assert "3 due jobs" in text(job)


@pytest.mark.parametrize("limit", [None, 10])
def test_a_job_that_waits_for_a_free_thread_says_so(
    configure_queue: ConfigureQueue, limit: int | None
) -> None:
    """In a queue without a limit, too, where nothing else would hold it."""
    configure_queue(**({"THROTTLE_LIMIT": limit} if limit else {}))
    Worker.objects.update(threads=4, executing=4)
    first, second = hipq.enqueue_many([hipq.NewJob("ask"), hipq.NewJob("ask")])

    assert codes(first) == ["busy"]
    assert text(first) == "All 4 threads that serve queue default are executing other jobs."
    assert codes(second) == ["behind", "busy"]
    assert codes(hipq.enqueue("ask", delay=60)) == ["scheduled"]

    Worker.objects.update(executing=3)
    assert codes(first) == []


def test_threads_that_are_held_by_jobs_whose_attempts_are_over_are_named() -> None:
    job = hipq.enqueue("ask")
    held = {"since": "2025-01-06T11:59:00+00:00", "reason": "2 of 4 threads held", "held": 2}
    Worker.objects.update(name="shop:7", threads=4, executing=4, troubles={"threads": held})
    partly = codes(job)
    Worker.objects.update(threads=2, executing=2)

    assert partly == ["threads_held", "busy"]
    assert codes(job) == ["threads_held"]
    assert text(job) == "Worker shop:7, since 2025-01-06 11:59:00 UTC: 2 of 4 threads held."
    Worker.objects.update(executing=1)
    assert codes(job) == []


def test_a_throttler_that_reschedules_is_named_with_its_time(
    configure_queue: ConfigureQueue,
) -> None:
    """In UTC, whatever zone the throttler thinks in."""
    later = datetime(2100, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    configure_queue(lambda queue, now, running, candidates: [hipq.Reschedule(later, "holiday")])
    job = hipq.enqueue("ask")

    assert codes(job) == ["throttler"]
    assert "2100-01-01 10:00:00 UTC" in text(job)
    assert "holiday" in text(job)


def test_a_throttler_that_fails_at_another_job_blocks_this_one(
    configure_queue: ConfigureQueue,
) -> None:
    def by_region(queue: Any, now: Any, running: Any, candidates: Any) -> list[Any]:
        return [hipq.Run() if job.job_data["region"] else hipq.Hold("x") for job in candidates]

    configure_queue(by_region)
    hipq.enqueue("echo", {})
    job = hipq.enqueue("echo", {"region": "east"})
    HandWorker().run_pass()

    assert "throttler_error" in codes(job)
    assert "KeyError: 'region'" in text(job)


@pytest.mark.conformance
def test_a_throttler_whose_query_fails_does_not_break_the_transaction(
    configure_queue: ConfigureQueue,
) -> None:
    def querying(*_: Any) -> Any:
        with connection.cursor() as cursor:
            cursor.execute("SELECT * FROM there_is_no_such_table")

    configure_queue(querying)
    job = hipq.enqueue("ask")

    assert codes(job) == ["throttler_error"]
    assert Job.objects.count() == 1


def test_the_most_decisive_reason_comes_first() -> None:
    job = hipq.enqueue(
        "nobody_knows", scheduled_run_time=datetime(2100, 1, 1, tzinfo=UTC),
        time_windows=["05:00-07:00"],
    )  # fmt: skip
    Queue.objects.update(paused=True)

    assert codes(job) == ["unknown_type", "paused", "scheduled", "window"]


def test_a_waiting_job_whose_answer_is_in_waits_for_no_window() -> None:
    other = hipq.cancel(hipq.enqueue("echo"))
    job = JobFactory.create(
        job_type=other.job_type,
        has_pending_answer=True,
        time_windows=["05:00-07:00"],
    )

    assert codes(job) == []
