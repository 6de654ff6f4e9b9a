"""`get_job` and `get_result`."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.models import Job, Queue
from tests.declaring import Declare
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db


def finished(result: Any) -> Job:
    job = hipq.enqueue("ask", job_key="k")
    run_due_jobs()
    hipq.complete("ask", "k", result)
    return job


def test_a_job_is_found_by_its_id() -> None:
    job = hipq.enqueue("ask")

    assert hipq.get_job(job.pk) == job
    assert hipq.get_job(str(job.pk)) == job
    assert async_to_sync(hipq.aget_job)(job.pk) == job


def test_what_is_no_job_is_not_found() -> None:
    job = hipq.enqueue("ask")
    Job.objects.filter(pk=job.pk).update(id=1)  # which Django takes True and 1.0 for

    no_ids: list[Any] = [-1, 2**80, "01", None, 1.0, True]
    for job_id in no_ids:
        with pytest.raises(hipq.JobNotFoundError, match="it was pruned, or never existed"):
            hipq.get_job(job_id)


def test_a_job_of_another_instance_is_not_found(settings: Settings) -> None:
    settings.HIPQ = {"default": {}, "shop": {}}
    job = hipq.enqueue("ask")

    with pytest.raises(hipq.JobNotFoundError, match="instance 'shop' has no job"):
        hipq.get_job(job.pk, instance="shop")


@pytest.mark.parametrize("result", [{"ok": 1}, None])
def test_the_result_is_what_the_job_has(result: Any) -> None:
    job = finished(result)

    assert hipq.get_result(job) == result
    assert hipq.get_result(job.pk, timeout=5) == result
    assert async_to_sync(hipq.aget_result)(job.pk) == result


def test_a_job_without_result_yet_is_told() -> None:
    job = hipq.enqueue("ask")

    with pytest.raises(hipq.JobNotFinishedError, match="is initial and has no result") as e:
        hipq.get_result(job)
    assert e.value.job == job


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (lambda job: hipq.fail(job, "declined"), r"\(ask\) failed: declined"),
        (hipq.cancel, r"\(ask\) was cancelled: Cancelled"),
    ],
)
def test_a_job_that_ended_otherwise_has_no_result(end: Any, said: str) -> None:
    job = hipq.enqueue("ask", job_key="k")
    run_due_jobs()
    end(Job.objects.get(pk=job.pk))
    run_due_jobs()

    with pytest.raises(hipq.JobFailedError, match=said) as raised:
        hipq.get_result(job)
    assert raised.value.job.is_final


def test_inside_a_transaction_there_is_nothing_to_wait_for() -> None:
    with transaction.atomic():
        job = hipq.enqueue("ask")

        with pytest.raises(hipq.InvalidJobError, match=r"inside a transaction.*after the commit"):
            hipq.get_result(job, timeout=1)


@pytest.mark.parametrize("timeout", [-1, "1"])
def test_a_timeout_out_of_range_is_refused(timeout: Any) -> None:
    with pytest.raises(hipq.InvalidJobError, match=r"get_result: timeout .*give seconds from 0"):
        hipq.get_result(hipq.enqueue("ask"), timeout)


@pytest.mark.django_db(transaction=True)
def test_who_waits_gets_the_result_when_it_is_there() -> None:
    job = hipq.enqueue("ask", job_key="k")
    run_due_jobs()

    def answer() -> None:
        try:
            hipq.complete("ask", "k", 42)
        finally:
            connection.close()

    answering = threading.Timer(0.05, answer)
    answering.start()
    try:
        assert hipq.get_result(job, timeout=30) == 42
    finally:
        answering.join()


@pytest.mark.django_db(transaction=True)
def test_who_waits_in_vain_is_told() -> None:
    job = hipq.enqueue("ask")

    with pytest.raises(hipq.JobNotFinishedError, match=r"again later, or with a longer timeout\."):
        hipq.get_result(job, timeout=0.05)
    with pytest.raises(hipq.JobNotFinishedError):
        async_to_sync(hipq.aget_result)(job, timeout=0.05)


@pytest.mark.django_db(transaction=True)
def test_a_handler_does_not_wait_for_a_job_that_may_never_start(declare: Declare) -> None:
    @declare.task("wait_for")
    def wait_for(number: int) -> Any:
        return hipq.get_result(number, timeout=30)

    behind = hipq.enqueue("ask", delay=3_600)
    held = hipq.enqueue("ask", after=[behind], queue="other")
    Queue.objects.update(throttle_limit=1)
    jobs = [wait_for.enqueue(job.pk) for job in (behind, held)]

    run_due_jobs()

    errors = [str(Job.objects.get(pk=job.pk).error) for job in jobs]
    assert "which may never start" in errors[0]
    assert f"get_result: job {held.pk} is held until the jobs before it have ended" in errors[1]
    with pytest.raises(hipq.JobNotFinishedError):  # outside of handlers it may be waited for
        hipq.get_result(held, timeout=0.01)
