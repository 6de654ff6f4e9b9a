"""What a handler may return and raise, and what becomes of its job."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NoReturn

import pytest

import hipq_django as hipq
from hipq_django.database import clock
from hipq_django.models import Attempt, Job
from tests.declaring import Declare
from tests.hand_worker import HandWorker
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db


def run(name: str, **options: Any) -> Job:
    job = hipq.enqueue(name, **options)
    run_due_jobs()
    job.refresh_from_db()
    return job


def test_what_a_handler_returns_is_the_result(declare: Declare) -> None:
    values = [None, 0, "", [], {"charged": 42}, "NONE", False, [None]]
    declare("plain")(lambda job: values[job.job_data])

    jobs = hipq.enqueue_many(hipq.NewJob("plain", number) for number in range(len(values)))
    run_due_jobs()

    for job, value in zip(jobs, values, strict=True):
        job.refresh_from_db()
        assert (job.state, job.outcome, job.error) == ("final", "succeeded", "NONE")
        assert (job.result, type(job.result)) == (value, type(value))
        assert job.attempts.count() == 0


def test_a_handler_sees_the_job_as_it_was_claimed(declare: Declare) -> None:
    seen: list[Any] = []

    @declare("look", timeout=60)
    def look(job: Job) -> None:
        seen.extend([job.job_data, job.job_key, job.attempt, job.state, job.error, job.timeout])

    run("look", job_data={"order": 42}, job_key="order-42")

    assert seen == [{"order": 42}, "order-42", 1, "running", "NONE", 60]


def test_a_handlers_copy_is_its_own(declare: Declare) -> None:
    @declare("scribble")
    def scribble(job: Job) -> str:
        job.job_data["order"] = 0
        job.priority, job.attempt, job.state, job.pk = 1, 99, "final", 0
        return "done"

    job = run("scribble", job_data={"order": 42})

    assert (job.job_data, job.priority, job.attempt) == ({"order": 42}, 100, 1)
    assert (job.state, job.result) == ("final", "done")


# Async


def test_an_async_handler_may_return_wait_fail_and_snooze(declare: Declare) -> None:
    @declare("later")
    async def later(job: Job) -> Any:
        await asyncio.sleep(0)
        if job.job_data in ("wait", "return"):
            return hipq.WAIT if job.job_data == "wait" else 7
        raise hipq.Snooze(60) if job.job_data == "snooze" else OSError("no route")

    jobs = [run("later", job_data=data) for data in ("wait", "snooze", "fail", "return")]

    assert [job.state for job in jobs] == ["running", "retry", "final", "final"]
    assert jobs[3].result == 7


async def in_a_group(*raised: Exception) -> None:
    async def raises(error: Exception) -> None:
        raise error

    async with asyncio.TaskGroup() as group:
        for error in raised:
            group.create_task(raises(error))


def test_what_one_task_of_a_group_raises_counts_as_if_it_were_raised_alone(
    declare: Declare,
) -> None:
    @declare("later", retry=hipq.Fixed(60, max_attempts=2, only=(OSError,)))
    async def later(job: Job) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(in_a_group(hipq.Snooze(60) if job.job_data else OSError("no route")))

    snoozed, failed = run("later", job_data="snooze"), run("later", job_data="")

    assert (snoozed.state, snoozed.attempts.count()) == ("retry", 0)
    assert (failed.state, failed.error) == ("retry", "OSError: no route")
    assert "in raises" in failed.attempts.get().traceback


# Errors


def test_a_failed_attempt_is_written_down() -> None:
    """T9: without a retry policy it is the end."""
    before = clock.now("default")
    job = run("boom", job_data={"message": "no such card"})

    assert (job.state, job.outcome, job.attempt) == ("final", "failed", 1)
    assert job.error == "RuntimeError: no such card"
    attempt = job.attempts.get()
    assert (attempt.attempt, attempt.kind) == (1, Attempt.Kind.RAISED)
    assert attempt.error == "RuntimeError: no such card"
    assert 'raise RuntimeError(job.job_data.get("message", "boom"))' in attempt.traceback
    assert attempt.worker == "run_due_jobs"
    assert before <= attempt.start_time <= attempt.end_time <= clock.now("default")


def leave(_: Job) -> NoReturn:
    sys.exit(3)


def recurse(job: Job) -> Any:
    return recurse(job)


def long_message(_: Job) -> NoReturn:
    raise ValueError("\0" + "x" * 100_000)


async def cancelled(_: Job) -> NoReturn:
    raise asyncio.CancelledError


def generator(_: Job) -> Any:
    return (number for number in (1, 2))


@pytest.mark.parametrize(
    ("handler", "error"),
    [
        (leave, "SystemExit: 3"),
        (recurse, "RecursionError: "),
        (long_message, "ValueError: \N{REPLACEMENT CHARACTER}xxx"),
        (cancelled, "CancelledError"),
        (generator, "ResultError: "),
    ],
)
def test_whatever_a_handler_does_wrong_fails_its_job_only(
    handler: Callable[..., Any], error: str, declare: Declare
) -> None:
    declare("wild")(handler)
    after = hipq.enqueue("echo", priority=200)

    job = run("wild")

    after.refresh_from_db()
    assert (job.outcome, after.outcome) == ("failed", "succeeded")
    assert error in job.error
    assert len(job.error) < 11_000


def test_an_attempt_is_counted_at_its_claim_and_has_no_error_of_the_one_before(
    declare: Declare,
) -> None:
    """T5: 0 → 1 → (retry) → 2."""
    seen: list[Any] = []

    @declare("twice", retry=hipq.Fixed(seconds=0, max_attempts=2))
    def twice(job: Job) -> None:
        seen.append((job.attempt, Job.objects.get(pk=job.pk).error))
        raise OSError("no route")

    job = run("twice")

    assert seen == [(1, "NONE"), (2, "NONE")]
    assert (job.attempt, job.error) == (2, "OSError: no route")


# Snooze


def test_a_snoozed_job_comes_back_after_its_seconds(declare: Declare, frozen_time: Any) -> None:
    """T5: through error to retry, without an Attempt."""

    @declare("sleepy")
    def sleepy(job: Job) -> str:
        if job.attempt == 1:
            raise hipq.Snooze(60)
        return "awake"

    job = run("sleepy")
    snoozed = (job.state, job.attempt, job.attempts.count())
    wait = job.scheduled_run_time - clock.now("default")
    frozen_time.shift(59)
    early = run_due_jobs()
    frozen_time.shift(1)
    run_due_jobs()
    job.refresh_from_db()

    assert (snoozed, wait, early) == (("retry", 1, 0), timedelta(seconds=60), 0)
    assert (job.result, job.attempt) == ("awake", 2)


# The code is not there


def test_a_job_whose_code_is_gone_after_the_claim_is_put_back(
    declare: Declare, caplog: pytest.LogCaptureFixture
) -> None:
    declare("gone")(lambda job: None)
    job = hipq.enqueue("gone")
    worker = HandWorker()
    worker.run_pass()

    declare.forget_all()
    worker.execute()
    worker.save()

    job.refresh_from_db()
    assert (job.state, job.attempts.count()) == ("retry", 0)


def test_the_log_has_a_line_for_each_event(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="hipq_django"):
        job = run("boom", job_data={"message": "no such card"}, job_key="order-42")

    about = f"job_id={job.pk} job_type=boom job_key=order-42 queue=default attempt=1"
    assert caplog.messages == [
        f"event=job_started {about}",
        f'event=job_failed {about} error="RuntimeError: no such card" outcome=failed '
        'msg="final after 1 failed attempt: it has no retry policy"',
    ]
