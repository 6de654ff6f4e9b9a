"""Throttlers that move jobs to another time, and throttlers that make mistakes."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any, NoReturn

import pytest
from django.db import connection

import hipq_django as hipq
from hipq_django.domain.throttling import Verdict
from hipq_django.models import Job, Queue
from tests.hand_worker import HandWorker
from tests.integration.conftest import ConfigureQueue
from tests.running import run_due_jobs
from tests.settings import ENGINE

pytestmark = pytest.mark.django_db


def enqueue(*data: Any) -> list[Job]:
    return hipq.enqueue_many([hipq.NewJob("ask", item) for item in data])


def running() -> list[Any]:
    return [job.job_data for job in Job.objects.running().order_by("pk")]


# Rescheduling


def reschedule(moment: datetime) -> Callable[..., list[Verdict]]:
    return lambda queue, now, running, candidates: [
        hipq.Reschedule(moment, "maintenance") for _ in candidates
    ]


def test_a_rescheduled_job_gets_another_time_and_nothing_else_changes(
    configure_queue: ConfigureQueue,
) -> None:
    """T24: neither an error nor an attempt."""
    later = datetime(2100, 1, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    configure_queue(reschedule(later))
    (job,) = enqueue("x")
    before: dict[str, Any] = dict(Job.objects.filter(pk=job.pk).values().get())

    run_due_jobs()

    after: dict[str, Any] = dict(Job.objects.filter(pk=job.pk).values().get())
    changed = {name for name, value in after.items() if value != before[name]}
    assert after["scheduled_run_time"] == later
    assert changed <= {"scheduled_run_time", "rank", "update_time"}


def test_a_job_rescheduled_into_the_past_does_not_keep_the_worker_spinning(
    configure_queue: ConfigureQueue,
) -> None:
    """T24."""
    asked = 0

    def to_the_past(queue: Queue, now: datetime, running: Any, candidates: Any) -> list[Verdict]:
        nonlocal asked
        asked += 1
        assert asked < 50, "asked again and again"
        return [hipq.Reschedule(now - timedelta(days=1)) for _ in candidates]

    configure_queue(to_the_past)
    enqueue("x")

    run_due_jobs()

    assert asked < 50


# Mistakes


def raising(*_: Any) -> NoReturn:
    raise KeyError("region")


def leaving(*_: Any) -> NoReturn:
    raise SystemExit(1)


def querying(*_: Any) -> NoReturn:
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM there_is_no_such_table")
    raise AssertionError


class UnspeakableError(Exception):
    """Its text cannot be had."""

    def __str__(self) -> str:
        raise SystemExit("no")


def raising_the_unspeakable(*_: Any) -> NoReturn:
    raise UnspeakableError


class Unnamed:
    """A verdict, or a throttler, that cannot be shown."""

    def __repr__(self) -> str:
        raise SystemExit("no")

    def __call__(self, queue: Queue, now: datetime, running: Any, candidates: Any) -> list[Any]:
        return [self] * len(candidates)


MISTAKES = [
    raising,
    leaving,
    raising_the_unspeakable,
    Unnamed(),
    querying,
    lambda *_: None,
    lambda *_: [],
    lambda queue, now, running, candidates: ["run"] * len(candidates),
    lambda queue, now, running, candidates: [True] * len(candidates),
    lambda queue, now, running, candidates: [hipq.Reschedule("later")] * len(candidates),  # type: ignore[arg-type]  # what is refused
    lambda queue, now, running, candidates: [hipq.Run()] * (len(candidates) + 1),
]


@pytest.mark.conformance
@pytest.mark.parametrize("number", range(len(MISTAKES)))
def test_a_throttler_that_makes_a_mistake_holds_its_queue_only(
    configure_queue: ConfigureQueue, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The queue is blocked, the problem is logged and shown, the worker goes on."""
    queue = configure_queue(MISTAKES[number])
    (job,) = enqueue("x")
    other = hipq.enqueue("echo", queue="other")

    with caplog.at_level(logging.ERROR, logger="hipq_django"):
        run_due_jobs()

    for row in (job, other, queue):
        row.refresh_from_db()
    assert (job.state, job.attempt, other.outcome) == ("initial", 0, "succeeded")
    assert queue.throttler_problem.startswith("throttler ")
    assert (
        f"event=queue_blocked queue=default msg={json.dumps(queue.throttler_problem)}"
        in caplog.messages
    )


def test_a_repaired_throttler_lets_the_queue_go(configure_queue: ConfigureQueue) -> None:
    queue = configure_queue(raising)
    enqueue("x")
    run_due_jobs()

    configure_queue(hipq.KeyLimit("tenant", 1))
    run_due_jobs()

    queue.refresh_from_db()
    assert (running(), queue.throttler_problem) == (["x"], "NONE")


def test_a_throttler_without_code_holds_its_queue(settings: Any) -> None:
    """E014, at run time."""
    throttlers = {"THROTTLERS": ["no.such.limit"]}
    settings.HIPQ = {"default": {"ENGINE": ENGINE, "QUEUES": {"default": throttlers}}}
    (job,) = enqueue("x")
    other = hipq.enqueue("echo", queue="other")

    run_due_jobs()

    job.refresh_from_db()
    other.refresh_from_db()
    assert (job.state, other.outcome) == ("initial", "succeeded")
    assert "no.such.limit" in Queue.objects.get(name="default").throttler_problem


def test_an_answered_job_needs_no_throttler(configure_queue: ConfigureQueue) -> None:
    configure_queue(raising)
    job = hipq.enqueue("ask", job_key="k")
    hipq.complete("ask", "k", response="paid")

    run_due_jobs()

    job.refresh_from_db()
    assert job.outcome == "succeeded"


def test_a_problem_that_only_one_worker_has_is_logged_once(
    configure_queue: ConfigureQueue, caplog: pytest.LogCaptureFixture
) -> None:
    """The other one, for which all is well, writes so again and again."""
    broken = [True]

    def throttler(*args: Any) -> list[hipq.Run]:
        if broken[0]:
            raise LookupError("no such package here")
        return [hipq.Run() for _ in args[-1]]

    configure_queue(throttler)
    bad, good = HandWorker(), HandWorker()

    for _ in range(10):
        hipq.enqueue("echo")
        bad.work()
        broken[0] = False
        good.work()
        broken[0] = True

    assert Job.objects.filter(outcome="succeeded").count() == 10
    assert caplog.text.count("event=queue_blocked") == 1
