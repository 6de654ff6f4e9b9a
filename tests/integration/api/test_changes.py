"""A waiting job's time and priority are changed; a new job is put off; async twins."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine

import hipq_django as hipq
from hipq_django.domain.states import WAITING, State
from hipq_django.models import Job
from tests.factories import JobFactory
from tests.noon import MONDAY_NOON
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db

NIGHT = datetime(2030, 5, 1, 2, tzinfo=UTC)


def row(job: Job) -> dict[str, Any]:
    return dict(Job.objects.filter(pk=job.pk).values().get())


@pytest.mark.conformance
@pytest.mark.parametrize("state", WAITING)
def test_a_waiting_job_gets_another_time(state: State) -> None:
    job = JobFactory.create(state=state)

    assert hipq.reschedule(job, NIGHT) is job

    assert (job.scheduled_run_time, job.state) == (NIGHT, state)
    stored = row(job)
    assert stored["scheduled_run_time"] == NIGHT
    assert stored["rank"] == job.queue.ordering.rank(NIGHT, job.priority)
    assert run_due_jobs() == 0


def test_its_windows_hold(frozen_time: time_machine.Traveller) -> None:
    job = hipq.enqueue("echo", time_windows=["22:00-23:00"])

    hipq.reschedule(job, MONDAY_NOON + timedelta(days=1))

    assert job.scheduled_run_time == MONDAY_NOON + timedelta(days=1, hours=10)


@pytest.mark.conformance
def test_a_waiting_job_gets_another_priority() -> None:
    first, second = hipq.enqueue("echo", queue="q"), hipq.enqueue("echo", queue="q")

    assert hipq.reprioritize(second, first.priority - 1) is second

    assert row(second)["priority"] == first.priority - 1
    assert row(second)["rank"] == second.queue.ordering.rank(
        second.scheduled_run_time, second.priority
    )


@pytest.mark.parametrize("delay", [90, timedelta(seconds=90)])
def test_a_job_is_put_off(delay: Any, frozen_time: time_machine.Traveller) -> None:
    single = hipq.enqueue("echo", delay=delay)
    [one_of_many] = hipq.enqueue_many([hipq.NewJob("echo", delay=delay)])

    for job in (single, one_of_many):
        job.refresh_from_db()
        assert job.scheduled_run_time == MONDAY_NOON + timedelta(seconds=90)
    assert run_due_jobs() == 0
    frozen_time.shift(90)
    assert run_due_jobs() == 2


def test_the_package_shows_its_public_names_and_no_others() -> None:
    assert dir(hipq) == sorted(vars(hipq)["__all__"])
    assert hipq.Job is Job
