"""Orders of steps in which something went wrong once, each as short as it can be."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import time_machine

import hipq_django as hipq
from hipq_django.answers.api import answer_callback
from hipq_django.answers.callback_urls import Token
from hipq_django.conf.instances import get_instance
from hipq_django.domain.states import Outcome, State
from hipq_django.maintenance import recovery
from hipq_django.models import Answer, Job
from tests.declaring import Declare
from tests.hand_worker import HandWorker
from tests.running import run_due_jobs

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]

Kind, Status = Answer.Kind, Answer.Status


def keep_up() -> None:
    recovery.time_out_overdue(get_instance("default"))


def test_a_repeated_callback_is_a_duplicate_while_the_response_handler_is_retried(
    declare: Declare,
) -> None:
    @declare("ask_twice", retry=hipq.Fixed(0))
    def ask(job: Job) -> Any:
        return hipq.WAIT

    @ask.on_response
    def fail_at_first(job: Job, response: Any) -> Any:
        if job.attempt == 1:
            raise ValueError("not understood")
        raise hipq.Snooze(60)

    job = ask.enqueue()
    run_due_jobs()
    token = Token("default", job.pk, 1)
    assert answer_callback(token, Kind.RESPONSE, "paid").status == Status.ACCEPTED
    run_due_jobs()
    assert answer_callback(token, Kind.RESPONSE, "paid").status == Status.DUPLICATE


def test_a_late_result_leaves_the_next_attempt_of_the_job_in_its_worker(
    declare: Declare, frozen_time: time_machine.Traveller
) -> None:
    @declare("slow", timeout=60, retry=hipq.Fixed(0))
    def slow(job: Job) -> Any:
        return "done"

    job = slow.enqueue()
    worker = HandWorker(threads=5)
    worker.run_pass()
    frozen_time.shift(timedelta(seconds=61))
    keep_up()
    hung, worker.claims = worker.claims, []
    worker.work()
    assert worker.run_pass() == [job]
    second, worker.claims = worker.claims, hung
    worker.execute()
    worker.save()
    job.refresh_from_db()
    assert (job.state, job.attempt, job.worker_id) == (State.RUNNING, 2, worker.row.pk)
    assert list(worker.batch) == second


def test_what_a_handler_writes_on_its_copy_does_not_change_the_order_of_the_job(
    declare: Declare,
) -> None:
    @declare("scribbler")
    def scribble(job: Job) -> Any:
        job.priority = 1
        raise hipq.Snooze(60)

    job = scribble.enqueue(priority=500)
    run_due_jobs()
    job.refresh_from_db()
    assert job.state == State.RETRY
    assert job.rank == job.queue.ordering.rank(job.scheduled_run_time, job.priority)


@pytest.mark.parametrize("ending", [hipq.Snooze(60), OSError("down")])
def test_what_handlers_write_on_their_copies_does_not_keep_results_from_being_saved(
    declare: Declare, ending: Exception
) -> None:
    @declare("breaker", retry=hipq.Never())
    def break_copy(job: Job) -> Any:
        name = job.job_data
        job.__dict__[name] = "five"
        if name == "queue":
            job._state.fields_cache.clear()
            job.queue_id = None  # type: ignore[assignment]  # a broken job
        raise ending

    @declare("innocent")
    def innocent(job: Job) -> Any:
        return "done"

    names = ["timeout", "deadline", "time_windows", "priority", "queue"]
    broken, other = [break_copy.enqueue(name) for name in names], innocent.enqueue()
    run_due_jobs()
    other.refresh_from_db()
    assert other.outcome == Outcome.SUCCEEDED
    states = Job.objects.in_bulk([job.pk for job in broken])
    assert [
        name
        for name, job in zip(names, broken, strict=True)
        if states[job.pk].state == State.RUNNING
    ] == []
