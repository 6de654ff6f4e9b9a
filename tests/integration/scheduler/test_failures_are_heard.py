"""Each job that has failed for good is one error in the log; what is tried again is a warning."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

import hipq_django as hipq
from hipq_django.database import clock
from hipq_django.exceptions import ErrorAnswer, JobTimeout
from hipq_django.models import Job
from hipq_django.signals import job_failed
from tests.declaring import Declare
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db


class DeclinedError(Exception):
    """What the bank says."""


def decline(job: Job) -> None:
    raise DeclinedError(f"no funds for {job.job_data}")


@pytest.fixture
def heard(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """What the package says at the levels that somebody listens to."""
    with caplog.at_level(logging.WARNING, logger="hipq_django"):
        yield caplog


def run(declared: Any, **options: Any) -> Job:
    job: Job = declared.enqueue(**options)
    run_due_jobs()
    job.refresh_from_db()
    return job


def said(record: logging.LogRecord) -> tuple[str, str, int, str]:
    """Return level, event, attempt and sentence."""
    sentence = record.getMessage().rpartition(' msg="')[2].rpartition(": ")[2].rstrip('"')
    return record.levelname, record.event, record.attempt, sentence  # type: ignore[attr-defined]  # extra


def test_a_job_that_is_given_up_is_one_error_with_its_traceback(
    declare: Declare, heard: pytest.LogCaptureFixture
) -> None:
    job = run(declare("charge", queue="bank", retry=hipq.Never())(decline), job_key="order-7")

    [record] = heard.records
    assert said(record) == ("ERROR", "job_failed", 1, "Never() gives up")
    about = ("job_id", "job_type", "job_key", "queue", "attempt", "outcome")
    assert [getattr(record, name) for name in about] == [
        job.pk, "charge", "order-7", "bank", 1, "failed",
    ]  # fmt: skip
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], DeclinedError)
    text = logging.Formatter().format(record)
    assert text.count("Traceback (most recent call last)") == 1
    assert "in decline\n      raise DeclinedError" in text
    assert record.filename != ""


def test_each_retry_is_a_warning_and_the_end_an_error(
    declare: Declare, heard: pytest.LogCaptureFixture
) -> None:
    policy = hipq.Fixed(0, max_attempts=3)
    run(declare("charge", retry=policy)(decline))

    assert [said(record) for record in heard.records] == [
        ("WARNING", "attempt_failed", 1, "tried again in 0 s"),
        ("WARNING", "attempt_failed", 2, "tried again in 0 s"),
        ("ERROR", "job_failed", 3, f"{policy} gives up"),
    ]
    assert all(record.exc_info for record in heard.records)
    assert "final after 3 failed attempts" in heard.records[-1].getMessage()


def test_what_a_retry_handler_decides_is_heard_with_the_traceback(
    declare: Declare, heard: pytest.LogCaptureFixture
) -> None:
    declared = declare("charge")(decline)
    declared.on_error(lambda job: hipq.RetryIn(0) if job.attempt == 1 else None)

    run(declared)

    assert [said(record) for record in heard.records] == [
        ("WARNING", "attempt_failed", 1, "tried again in 0 s"),
        ("ERROR", "job_failed", 2, "its retry handler gives up"),
    ]
    for record in heard.records:
        assert record.exc_info is not None
        assert str(record.exc_info[1]) == "no funds for {}"
        assert logging.Formatter().format(record).count("in decline\n") == 1


def raising(job: Job) -> None:
    raise LookupError("no such order")


def taking_a_key(job: Job) -> hipq.RetryIn:
    job.job_key = "taken"
    return hipq.RetryIn(0)


@pytest.mark.parametrize(
    ("handler", "why", "kind"),
    [
        (raising, "its retry handler raised LookupError: no such order", "LookupError"),
        (
            taking_a_key,
            "a live job has the key 'taken', which its retry handler set",
            "DeclinedError",
        ),
    ],
)
def test_a_decision_that_fails_is_one_error(
    declare: Declare, heard: pytest.LogCaptureFixture, handler: Any, why: str, kind: str
) -> None:
    declared = declare("charge")(decline)
    declared.on_error(handler)
    declared.enqueue(job_key="taken", delay=3_600)

    run(declared, job_key="mine")

    [record] = heard.records
    assert (record.levelname, record.event) == ("ERROR", "job_failed")  # type: ignore[attr-defined]  # extra
    assert record.getMessage().endswith(f' msg="final after 1 failed attempt: {why}"')
    assert record.exc_info is not None
    assert record.exc_info[0] is not None
    assert record.exc_info[0].__name__ == kind
    reasons = hipq.explain(Job.objects.get(job_key="mine"))
    assert str(reasons[1]) == f"It was not tried again, because {why}; failed attempts: 1."


def test_a_time_out_and_an_error_answer_are_heard_too(
    declare: Declare, heard: pytest.LogCaptureFixture
) -> None:
    declared = declare("waits", retry=hipq.Never())(lambda job: hipq.WAIT)
    late, refused = run(declared), run(declared, job_key="k")
    Job.objects.filter(pk=late.pk).update(deadline=clock.now("default") - timedelta(seconds=1))
    hipq.fail("waits", "k", "no such account")
    run_due_jobs()

    ends = {r.job_id: r for r in heard.records if r.event == "job_failed"}  # type: ignore[attr-defined]  # extra
    assert {pk: r.levelname for pk, r in ends.items()} == {late.pk: "ERROR", refused.pk: "ERROR"}
    assert ends[late.pk].outcome == "timed_out"  # type: ignore[attr-defined]  # extra
    assert "no such account" in ends[refused.pk].getMessage()
    assert len(heard.records) == 2
    kinds = {pk: record.exc_info and record.exc_info[0] for pk, record in ends.items()}
    assert kinds == {late.pk: JobTimeout, refused.pk: ErrorAnswer}


def test_success_and_waiting_are_quiet(declare: Declare, heard: pytest.LogCaptureFixture) -> None:
    run(declare("fine")(lambda job: 1))
    run(declare("waits")(lambda job: hipq.WAIT))

    @declare("later")
    def later(job: Job) -> None:
        raise hipq.Snooze(60)

    run(later)

    assert heard.records == []


def test_sensitive_values_are_not_heard(declare: Declare, heard: pytest.LogCaptureFixture) -> None:
    card = {"card": "4111-1111-1111-1111"}
    run(declare("charge", sensitive=["card"])(decline), job_data=card)

    [record] = heard.records
    text = logging.Formatter().format(record) + repr(vars(record))
    assert "4111-" not in text  # without the hyphen it may stand in a time
    assert "DeclinedError: no funds for {'card': '•••'}" in text
    assert record.exc_info is not None
    assert record.exc_info[2] is not None
    assert "4111" not in str(record.exc_info[1])
    assert not record.exc_info[2].tb_frame.f_locals


class Large:
    """What nobody wants to keep in memory."""


@pytest.mark.parametrize("in_group", [False, True])
def test_what_a_handler_held_is_let_go_of(
    declare: Declare, heard: pytest.LogCaptureFixture, in_group: bool
) -> None:
    seen: list[weakref.ref[Large]] = []

    def hold(_: Any = None) -> None:
        held = Large()
        seen.append(weakref.ref(held))
        try:
            raise KeyError("first")
        except KeyError as error:
            raise DeclinedError("then") from error

    async def hold_later() -> None:
        hold()

    async def hold_in_a_group(job: Job) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(2):
                group.create_task(hold_later())

    run(declare("large")(hold_in_a_group if in_group else hold))
    gc.collect()

    assert heard.records[0].exc_info is not None
    assert {held() for held in seen} == {None}


def test_the_signal_carries_the_exception(
    declare: Declare, django_capture_on_commit_callbacks: Any
) -> None:
    raised: list[BaseException | None] = []

    def receiver(job: Job, exception: BaseException | None, **_: Any) -> None:
        raised.append(exception)

    job_failed.connect(receiver)
    try:
        with django_capture_on_commit_callbacks(execute=True):
            run(declare("charge", retry=hipq.Never())(decline))
            run(declare("waits", retry=hipq.Never())(lambda job: hipq.WAIT), job_key="k")
            hipq.fail("waits", "k", "no")
    finally:
        job_failed.disconnect(receiver)

    assert [type(exception) for exception in raised] == [DeclinedError, type(None)]
