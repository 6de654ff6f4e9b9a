"""Signals: after the commit, once, and harmless."""

from __future__ import annotations

import logging
from asyncio import CancelledError
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

import hipq_django as hipq
from hipq_django import signals
from hipq_django.conf.instances import get_instance
from hipq_django.maintenance import recovery
from hipq_django.models import Job
from tests.declaring import Declare
from tests.running import run_due_jobs

pytestmark = [pytest.mark.conformance, pytest.mark.django_db(transaction=True)]

NAMES = ("job_enqueued", "job_started", "job_failed", "job_finished")


@pytest.fixture
def heard() -> Iterator[list[tuple[str, int, str, str]]]:
    """What was sent: signal, job, its state and outcome as the receiver saw them."""
    heard: list[tuple[str, int, str, str]] = []
    receivers = {}
    for name in NAMES:

        def receive(sender: Any, job: Job, name: str = name, **_: Any) -> None:
            assert sender is Job
            heard.append((name, job.pk, str(job.state), str(job.outcome)))

        receivers[name] = receive
        getattr(signals, name).connect(receive)
    yield heard
    for name, receive in receivers.items():
        getattr(signals, name).disconnect(receive)


def sent(heard: list[Any], name: str) -> list[Any]:
    return [rest for first, *rest in heard if first == name]


def test_a_job_that_succeeds_is_enqueued_started_and_finished(heard: list[Any]) -> None:
    job = hipq.enqueue("echo")
    run_due_jobs()

    assert heard == [
        ("job_enqueued", job.pk, "initial", "NONE"),
        ("job_started", job.pk, "running", "NONE"),
        ("job_finished", job.pk, "final", "succeeded"),
    ]


def test_a_job_that_fails_is_failed_before_it_is_finished(heard: list[Any]) -> None:
    job = hipq.enqueue("boom")
    run_due_jobs()

    assert heard[2:] == [
        ("job_failed", job.pk, "error", "NONE"),
        ("job_finished", job.pk, "final", "failed"),
    ]


def test_every_failed_attempt_is_told(heard: list[Any], declare: Declare) -> None:
    declare("flaky", retry=hipq.Fixed(seconds=0, max_attempts=3))(lambda job: 1 / 0)
    hipq.enqueue("flaky")
    run_due_jobs()

    counts = [len(sent(heard, name)) for name in NAMES]
    assert counts == [1, 3, 3, 1]


def test_a_snooze_is_no_failure(heard: list[Any], declare: Declare) -> None:
    @declare("sleepy")
    def sleepy(job: Job) -> None:
        raise hipq.Snooze(60)

    hipq.enqueue("sleepy")
    run_due_jobs()

    assert [name for name, *_ in heard] == ["job_enqueued", "job_started"]


def test_an_answer_finishes_or_fails_its_job(heard: list[Any]) -> None:
    one, other = (hipq.enqueue("ask", job_key=key) for key in "ab")
    run_due_jobs()
    heard.clear()

    hipq.complete("ask", "a", response="paid")
    hipq.fail("ask", "b", error="declined")

    assert heard == [
        ("job_finished", one.pk, "final", "succeeded"),
        ("job_failed", other.pk, "error", "NONE"),
    ]


def test_a_cancelled_job_is_finished(heard: list[Any]) -> None:
    job = hipq.enqueue("ask")
    hipq.cancel(job)

    assert sent(heard, "job_finished") == [[job.pk, "final", "cancelled"]]


def test_a_replaced_job_is_finished_and_the_new_one_enqueued(heard: list[Any]) -> None:
    old = hipq.enqueue("ask", job_key="k")
    new = hipq.enqueue("ask", job_key="k", on_conflict="replace")

    assert sent(heard, "job_finished") == [[old.pk, "final", "cancelled"]]
    assert [pk for pk, *_ in sent(heard, "job_enqueued")] == [old.pk, new.pk]


def test_a_job_that_was_there_already_is_not_enqueued(heard: list[Any]) -> None:
    hipq.enqueue("ask", job_key="k")
    hipq.enqueue("ask", job_key="k", on_conflict="return")

    assert len(sent(heard, "job_enqueued")) == 1


def test_many_jobs_and_a_requeued_one_are_told(heard: list[Any]) -> None:
    jobs = hipq.enqueue_many([hipq.NewJob("echo") for _ in range(3)])
    run_due_jobs()
    fresh = hipq.requeue(jobs[0])

    told = [pk for pk, *_ in sent(heard, "job_enqueued")]
    assert told == [*(job.pk for job in jobs), fresh.pk]


def test_all_jobs_that_are_requeued_with_one_are_told(heard: list[Any]) -> None:
    failed, *_ = hipq.chain(hipq.NewJob("boom"), hipq.NewJob("echo"), hipq.NewJob("echo"))
    run_due_jobs()
    heard.clear()

    hipq.requeue(failed, dependents=True)

    fresh = Job.objects.filter(origin__isnull=False).order_by("pk")
    told = [pk for pk, *_ in sent(heard, "job_enqueued")]
    assert len(told) == 3
    assert told == [job.pk for job in fresh]


def test_a_timeout_is_a_failure(heard: list[Any], declare: Declare) -> None:
    declare("charge", timeout=0.001)(lambda job: hipq.WAIT)
    job = hipq.enqueue("charge")
    run_due_jobs()
    while not recovery.time_out_overdue(get_instance()) and not sent(heard, "job_failed"):
        pass
    run_due_jobs()

    assert sent(heard, "job_failed") == [[job.pk, "error", "NONE"]]
    assert sent(heard, "job_finished") == [[job.pk, "final", "timed_out"]]


# After the commit


def test_nothing_is_told_before_the_commit(heard: list[Any]) -> None:
    with transaction.atomic():
        job = hipq.enqueue("ask", job_key="k")
        hipq.enqueue_many([hipq.NewJob("ask")])
        hipq.cancel(job)
        before = list(heard)

    assert before == []
    assert [name for name, *_ in heard] == ["job_enqueued", "job_enqueued", "job_finished"]


def test_nothing_is_told_of_what_was_rolled_back(heard: list[Any]) -> None:
    job = hipq.enqueue("ask", job_key="k")
    run_due_jobs()
    heard.clear()

    with transaction.atomic():
        hipq.enqueue("ask")
        hipq.complete("ask", "k", response="paid")
        transaction.set_rollback(True)

    assert heard == []
    job.refresh_from_db()
    assert job.state == "running"


def test_a_receiver_sees_the_row_as_it_is_told(declare: Declare) -> None:
    rows: list[Any] = []

    def look(job: Job, **_: Any) -> None:
        row = Job.objects.get(pk=job.pk)
        rows.append((row.state, row.outcome, row.result, job.result))

    signals.job_finished.connect(look)
    try:
        hipq.enqueue("echo", "hello")
        run_due_jobs()
    finally:
        signals.job_finished.disconnect(look)

    assert rows == [("final", "succeeded", "hello", "hello")]


@pytest.mark.parametrize("retry", [None, hipq.Never(), hipq.Fixed(seconds=0, max_attempts=2)])
def test_who_hears_only_of_the_end_sees_the_error_too(retry: Any, declare: Declare) -> None:
    errors: list[Any] = []

    def look(job: Job, **_: Any) -> None:
        errors.append((job.error, Job.objects.get(pk=job.pk).error))

    declare("flaky", **({"retry": retry} if retry else {}))(lambda job: 1 / 0)
    signals.job_finished.connect(look)
    try:
        hipq.enqueue("flaky")
        run_due_jobs()
    finally:
        signals.job_finished.disconnect(look)

    assert errors == [("ZeroDivisionError: division by zero",) * 2]


def test_a_receiver_that_raises_harms_nobody(
    heard: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    def broken(**_: Any) -> None:
        raise KeyError("mail server")

    for name in NAMES:
        getattr(signals, name).connect(broken)
    try:
        with caplog.at_level(logging.ERROR, logger="hipq_django"):
            job = hipq.enqueue("echo")
            run_due_jobs()
    finally:
        for name in NAMES:
            getattr(signals, name).disconnect(broken)

    job.refresh_from_db()
    assert job.outcome == "succeeded"
    assert [name for name, *_ in heard] == ["job_enqueued", "job_started", "job_finished"]
    assert sum("KeyError: 'mail server'" in message for message in caplog.messages) == 3


class UnspeakableError(Exception):
    """Its text cannot be had."""

    def __str__(self) -> str:
        raise SystemExit("no")

    __repr__ = __str__


class Unnamed:
    """A receiver that cannot be named, and raises what cannot be shown."""

    def __call__(self, **_: Any) -> None:
        raise UnspeakableError

    def __repr__(self) -> str:
        raise SystemExit("no")


def test_a_receiver_that_cannot_even_be_named_harms_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    unnamed = Unnamed()
    for name in NAMES:
        getattr(signals, name).connect(unnamed)
    try:
        with caplog.at_level(logging.ERROR, logger="hipq_django"):
            job = hipq.enqueue("echo")
            run_due_jobs()
    finally:
        for name in NAMES:
            getattr(signals, name).disconnect(unnamed)

    job.refresh_from_db()
    assert job.outcome == "succeeded"
    assert sum("event=receiver_raised" in message for message in caplog.messages) == 3


@pytest.mark.parametrize("error", [SystemExit(3), CancelledError("a"), GeneratorExit("a")])
def test_a_receiver_that_exits_harms_nobody(
    caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    def exits(**_: Any) -> None:
        raise error

    for name in NAMES:
        getattr(signals, name).connect(exits)
    try:
        with caplog.at_level(logging.ERROR, logger="hipq_django"):
            job = hipq.enqueue("echo")
            behind = hipq.enqueue("echo", after=[job])
            run_due_jobs()
    finally:
        for name in NAMES:
            getattr(signals, name).disconnect(exits)

    job.refresh_from_db()
    behind.refresh_from_db()
    assert (job.outcome, behind.outcome) == ("succeeded", "succeeded")
    said = f"a receiver raised {type(error).__name__}: {error}; those behind it were not called"
    assert sum(said in message for message in caplog.messages) == 6


def test_a_job_whose_new_key_was_taken_is_told_as_it_is_stored(declare: Declare) -> None:
    charge = declare("charge")(lambda job: 1 / 0)

    @charge.on_error
    def take(job: Job) -> hipq.RetryIn:
        job.job_key = "taken"
        return hipq.RetryIn(0)

    charge.enqueue(job_key="taken", scheduled_run_time=timezone.now() + timedelta(days=1))
    charge.enqueue(job_key="mine")
    told: list[str] = []

    def look(job: Job, **_: Any) -> None:
        told.append(job.job_key)

    signals.job_finished.connect(look)
    try:
        run_due_jobs()
    finally:
        signals.job_finished.disconnect(look)

    assert told == ["mine"]
