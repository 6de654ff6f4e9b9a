"""`immediate`: jobs that run before `enqueue` returns."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction

import hipq_django as hipq
from hipq_django import testing
from hipq_django.models import Job
from tests.declaring import Declare

pytestmark = pytest.mark.django_db


def outcome_of(job: Job) -> str:
    job.refresh_from_db()
    return job.outcome


def test_a_job_has_run_when_enqueue_returns_until_the_block_ends() -> None:
    with testing.immediate():
        job = hipq.enqueue("echo", 7)
        assert outcome_of(job) == "succeeded"

    assert job.result == 7
    assert outcome_of(hipq.enqueue("echo")) == "NONE"


def test_what_a_job_enqueues_runs_after_it(declare: Declare) -> None:
    order = []

    @declare("outer")
    def outer(job: Job) -> None:
        hipq.enqueue("inner")
        order.append("outer")

    @declare("inner")
    def inner(job: Job) -> None:
        order.append("inner")

    with testing.immediate():
        hipq.enqueue("outer")

    assert order == ["outer", "inner"]


def test_what_is_for_later_or_waits_for_an_answer_stays(declare: Declare) -> None:
    declare("ask_them")(lambda job: hipq.WAIT)
    with testing.immediate():
        later, asked = hipq.enqueue("echo", delay=60), hipq.enqueue("ask_them", job_key="k")

    testing.assert_waiting(later)
    assert outcome_of(asked) == "NONE"
    assert asked.is_awaiting_answer


def test_what_follows_a_job_runs_after_it_with_its_result(declare: Declare) -> None:
    @declare.task("add")
    def add(number: int, *, inputs: list[Any] = hipq.INPUTS) -> int:
        return number + int(sum(inputs))

    with testing.immediate():
        jobs = hipq.chain(add.new(1), add.new(2), add.new(3))
        with hipq.batch(then=add.new(10)) as batch:
            batch.enqueue_many([add.new(4), add.new(5)])

    assert [testing.assert_finished(job).result for job in jobs] == [1, 3, 6]
    assert Job.objects.get(batch=None, job_data={"number": 10}).result == 19


def test_only_jobs_of_the_queues_that_are_given_run(declare: Declare) -> None:
    declare("elsewhere", queue="elsewhere")(lambda job: None)
    with testing.immediate("elsewhere"):
        there, here = hipq.enqueue("elsewhere"), hipq.enqueue("echo")

    assert (outcome_of(there), outcome_of(here)) == ("succeeded", "NONE")


def enqueue_and_go_on(reached: list[str]) -> None:
    with testing.immediate():
        hipq.enqueue("fails")
        reached.append("its caller goes on")


def test_what_a_handler_raises_is_raised_at_the_end_and_not_in_its_callers_code(
    declare: Declare,
) -> None:
    @declare("fails", retry=hipq.Never())
    def fails(job: Job) -> Any:
        raise OSError("the disk is full")

    reached: list[str] = []
    with pytest.raises(OSError, match="the disk is full"):
        enqueue_and_go_on(reached)
    assert reached

    with testing.immediate(raise_errors=False):
        job = hipq.enqueue("fails")
    assert outcome_of(job) == "failed"


def test_a_job_whose_caller_rolls_back_leaves_no_row() -> None:
    with testing.immediate(), transaction.atomic():
        hipq.enqueue("echo", 1)
        transaction.set_rollback(True)

    assert not Job.objects.exists()
