"""The verbs on many jobs: in pages, counted, repeatable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.db.models import QuerySet
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.api import pages
from hipq_django.database import clock
from hipq_django.domain.states import WAITING, State
from hipq_django.models import Job
from hipq_django.signals import job_enqueued, job_finished
from tests.factories import JobFactory, JobTypeFactory
from tests.faults import breaking
from tests.listening import connected

pytestmark = pytest.mark.django_db

NIGHT = datetime(2030, 5, 1, 2, tzinfo=UTC)
ALL = Job.objects.all


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of three, so that few jobs make several."""
    monkeypatch.setattr(pages, "PAGE_SIZE", 3)


def finals(number: int, **values: Any) -> list[Job]:
    job_type = JobTypeFactory.create()
    return [JobFactory.create(state="final", job_type=job_type, **values) for _ in range(number)]


@pytest.fixture
def told() -> Iterator[list[int]]:
    """The jobs that were requeued or cancelled, as the signals tell."""
    told: list[int] = []

    def receiver(job: Job, **_: Any) -> None:
        told.append(job.origin_id or job.pk)

    with connected(receiver, job_enqueued, job_finished):
        yield told


# Requeue


@pytest.mark.conformance
def test_final_jobs_are_requeued_once() -> None:
    origins = finals(8, job_data={"n": 1}, priority=7)

    assert hipq.requeue_many(ALL()) == hipq.ManyResult(8)
    again = hipq.requeue_many(Job.objects.filter(pk__in=[job.pk for job in origins]))

    assert again == hipq.ManyResult(0, {"it was requeued already": 8})
    fresh = Job.objects.filter(state="initial")
    assert sorted(fresh.values_list("origin_id", flat=True)) == [job.pk for job in origins]
    assert set(fresh.values_list("priority", flat=True)) == {7}
    assert fresh[0].job_data == {"n": 1}


def test_what_cannot_be_requeued_is_skipped_with_the_reason() -> None:
    job_type = JobTypeFactory.create()
    waiting = JobFactory.create(state="initial", job_type=job_type, job_key="taken")
    JobFactory.create(state="final", job_type=job_type, job_key="taken")
    for _ in range(2):
        JobFactory.create(state="final", job_type=job_type, job_key="k")
    requeued = JobFactory.create(state="final", job_type=job_type)
    hipq.requeue(requeued)

    result = hipq.requeue_many(ALL().filter(origin=None))

    assert result.done == 1
    assert result.skipped == {
        "it is initial": 1,
        "its key is in use": 2,
        "it was requeued already": 1,
    }
    assert str(result).startswith("1 done, ")
    assert waiting.successors.count() == 0


# Cancel


@pytest.mark.conformance
def test_live_jobs_of_every_state_are_cancelled(
    told: list[int], django_capture_on_commit_callbacks: Any
) -> None:
    jobs = [JobFactory.create(state=state) for state in State for _ in range(2)]
    live = [job.pk for job in jobs if job.state != "final"]
    with django_capture_on_commit_callbacks(execute=True):
        result = hipq.cancel_many(ALL())

    assert result.done == len(live)
    assert sum(result.skipped.values()) == 2
    assert all(reason.startswith("it is final (") for reason in result.skipped)
    cancelled = Job.objects.filter(outcome="cancelled", error="Cancelled", worker=None)
    assert sorted(cancelled.filter(pk__in=live).values_list("pk", flat=True)) == sorted(live)
    assert sorted(told) == sorted(live)
    assert hipq.cancel_many(ALL()).done == 0


# Run now


@pytest.mark.conformance
def test_waiting_jobs_are_made_due() -> None:
    put_off = [JobFactory.create(state=state, scheduled_run_time=NIGHT) for state in WAITING]
    windowed = hipq.enqueue("echo", time_windows=["03:00-03:01"])
    due = hipq.enqueue("echo")
    running = JobFactory.create(state="running")

    result = hipq.run_now_many(ALL())

    assert result == hipq.ManyResult(3, {"it is due already": 1, "it is running": 1})
    now = clock.now("default")
    for job in [*put_off, windowed]:
        job.refresh_from_db()
        assert (job.scheduled_run_time <= now, job.time_windows) == (True, [])
        assert job.rank == job.queue.ordering.rank(job.scheduled_run_time, job.priority)
    due.refresh_from_db()
    running.refresh_from_db()
    assert running.state == "running"


# A call that breaks off


def broken_off(verb: str, jobs: QuerySet[Job], moment: int) -> str:
    """Let the connection break at a moment of a call; return where, '' if it has ended before."""
    clock.measure("default")  # now, and not among the statements that are counted
    with breaking(moment) as faults, suppress(OperationalError):
        getattr(hipq, verb)(jobs)
    connection.close()  # so it would be
    return faults.place


def is_done(verb: str, job: Job) -> bool:
    """Return whether a verb has done what it is for, exactly once."""
    job.refresh_from_db()
    if verb == "requeue_many":
        return job.successors.count() == 1
    return job.outcome == "cancelled" if verb == "cancel_many" else not job.time_windows


@pytest.mark.conformance
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    "verb",
    [
        "requeue_many",
        pytest.param("cancel_many", marks=pytest.mark.nightly),
        pytest.param("run_now_many", marks=pytest.mark.nightly),
    ],
)
def test_a_call_that_broke_off_anywhere_is_made_again_and_does_nothing_twice(
    verb: str, told: list[int], monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    monkeypatch.setattr(pages, "PAGE_SIZE", 2)
    # Whether a message is sent depends on when the last one was: the moments would shift.
    settings.HIPQ = {"default": {"NOTIFY": False}}
    state = "final" if verb == "requeue_many" else "initial"
    values = {"job_type": JobTypeFactory.create(), "time_windows": ["03:00-03:01"]}
    places = ["begin"]
    while places[-1]:
        jobs = [JobFactory.create(state=state, **values) for _ in range(4)]
        chosen = Job.objects.filter(pk__in=[job.pk for job in jobs])
        places.append(broken_off(verb, chosen, len(places)))

        result = getattr(hipq, verb)(chosen)

        assert result.done + sum(result.skipped.values()) == len(jobs)
        assert all(is_done(verb, job) for job in jobs), places[-1]

    assert max(Counter(told).values(), default=1) == 1
    commits = [place for place in places if place == "before a commit"]
    assert len(commits) >= 2  # of each page, which may break there


# Which jobs


@pytest.mark.conformance
def test_a_condition_that_the_verb_changes_is_no_trap() -> None:
    for _ in range(7):
        JobFactory.create(state="initial", scheduled_run_time=NIGHT)

    result = hipq.run_now_many(Job.objects.filter(scheduled_run_time__gt=NIGHT - timedelta(1)))

    assert result.done == 7


@pytest.mark.conformance
def test_a_slice_and_an_order_are_followed() -> None:
    jobs = [JobFactory.create(state="initial", scheduled_run_time=NIGHT) for _ in range(7)]

    result = hipq.cancel_many(Job.objects.order_by("-pk")[:5])

    assert result.done == 5
    assert list(Job.objects.filter(state="initial")) == jobs[:2]


@pytest.mark.conformance
@pytest.mark.parametrize("verb", ["requeue_many", "cancel_many", "run_now_many"])
def test_a_page_takes_few_statements(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PAGE_SIZE", 100)
    state = "final" if verb == "requeue_many" else "initial"
    job_type = JobTypeFactory.create()
    counts = []
    for number in (2, 60):
        for _ in range(number):
            JobFactory.create(state=state, job_type=job_type, scheduled_run_time=NIGHT)
        with CaptureQueriesContext(connection) as queries:
            assert getattr(hipq, verb)(ALL()).done >= number
        counts.append(len(queries))

    assert counts[1] <= counts[0] + 2  # an INSERT may be cut in two
