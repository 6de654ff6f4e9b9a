"""What handlers write on their copies of jobs harms neither these nor other jobs."""

from __future__ import annotations

from typing import Any

import pytest

import hipq_django as hipq
from hipq_django.domain.states import Outcome, State
from hipq_django.models import Job
from tests.declaring import Declare
from tests.running import run_due_jobs

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]


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
