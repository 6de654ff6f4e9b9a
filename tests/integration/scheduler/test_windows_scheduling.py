"""Time windows at work: at enqueue, at the claim, at the retry. The clock stands at Monday noon."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

import hipq_django as hipq
from hipq_django.models import Job
from tests.declaring import Declare
from tests.hand_worker import HandWorker
from tests.integration.conftest import ConfigureQueue
from tests.running import run_due_jobs

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.django_db,
    pytest.mark.usefixtures("frozen_time"),
]


def monday(hour: int, minute: int = 0) -> datetime:
    return datetime(2025, 1, 6, hour, minute, tzinfo=UTC)


def tuesday(hour: int, minute: int = 0) -> datetime:
    return monday(hour, minute) + timedelta(days=1)


def enqueue(*windows: Any, scheduled: datetime | None = None) -> Job:
    return hipq.enqueue("echo", time_windows=list(windows), scheduled_run_time=scheduled)


# At the claim of many


@pytest.mark.parametrize("limit", [0, 3])
def test_many_jobs_whose_window_has_closed_are_put_off_together(
    configure_queue: ConfigureQueue, limit: int
) -> None:
    """However few threads there are; the job behind them starts in the same pass."""
    configure_queue(THROTTLE_LIMIT=limit)
    jobs = hipq.enqueue_many([hipq.NewJob("echo", time_windows=["11:00-13:00"])] * 120)
    Job.objects.update(time_windows=["10:00-11:00"])
    open_now = hipq.enqueue("echo", time_windows=["11:00-13:00"])
    worker = HandWorker(threads=2)

    with CaptureQueriesContext(connection) as statements:
        claimed = worker.run_pass()

    assert claimed == [open_now]
    times = Job.objects.exclude(pk=open_now.pk).values_list("scheduled_run_time", flat=True)
    assert [*times] == [tuesday(10)] * len(jobs)
    assert len(statements) < 30


# At enqueue


@pytest.mark.parametrize(
    ("windows", "opening"),
    [
        (["13:00-14:00"], monday(13)),
        (["10:00-11:00"], tuesday(10)),
        (["05:00-07:00", "22:00-23:00"], monday(22)),
        (["22:00-02:00"], monday(22)),
        (["10:00-12:00"], tuesday(10)),
        (["12:00:01-13:00"], monday(12) + timedelta(seconds=1)),
        (["tue 13:00-14:00", "wed 05:00-06:00"], tuesday(13)),
        ([hipq.TimeWindow("22:00", "02:00", days="mon-fri")], monday(22)),
    ],
)
def test_outside_its_windows_the_job_waits_for_the_next_opening(
    windows: list[Any], opening: datetime
) -> None:
    """T29."""
    job = enqueue(*windows)

    assert job.scheduled_run_time == opening
    assert run_due_jobs() == 0


@pytest.mark.parametrize(
    ("windows", "scheduled", "expected"),
    [
        ([], None, monday(12)),
        ([], monday(14), monday(14)),
        (["11:00-13:00"], None, monday(12)),
        (["13:00-14:00"], None, monday(13)),
        (["13:00-14:00"], monday(15), tuesday(13)),
        (None, None, monday(22)),
        (None, monday(14), monday(22)),
        (["13:00-15:00"], monday(14), monday(14)),
        (["22:00-02:00"], tuesday(1, 59), tuesday(1, 59)),
    ],
)
def test_a_job_with_windows_of_its_own_does_not_wait_for_those_of_its_type(
    declare: Declare, windows: Any, scheduled: datetime | None, expected: datetime
) -> None:
    declare("nightly", time_windows=["22:00-23:00"])(lambda job: None)
    options: Any = {"time_windows": windows, "scheduled_run_time": scheduled, "priority": 5}

    job = hipq.enqueue("nightly", **options)
    (other,) = hipq.enqueue_many([hipq.NewJob("nightly", **options)])

    assert (job.scheduled_run_time, other.scheduled_run_time) == (expected, expected)
    assert job.rank == job.queue.ordering.rank(expected, 5)


def test_windows_are_in_the_zone_of_the_job_type(declare: Declare) -> None:
    """T29: 13:00 in Tokyo is 04:00 in UTC."""
    declare("tokyo", time_zone="Asia/Tokyo", time_windows=["13:00-14:00"])(lambda job: None)

    assert hipq.enqueue("tokyo").scheduled_run_time == tuesday(4)


# At the claim


def test_a_window_that_closed_meanwhile_puts_the_job_off_to_the_next_opening(
    frozen_time: Any,
) -> None:
    """T29, T30: no worker was there in time; state, attempt and error stay; then it runs."""
    job = enqueue("11:00-13:00")
    frozen_time.move_to(monday(13))

    ran = run_due_jobs()

    job.refresh_from_db()
    assert (ran, job.scheduled_run_time) == (0, tuesday(11))
    assert (job.state, job.attempt, job.error, job.attempts.count()) == ("initial", 0, "NONE", 0)
    assert job.rank == job.queue.ordering.rank(tuesday(11), job.priority)
    frozen_time.move_to(tuesday(11))
    assert run_due_jobs() == 1


# At the retry


def test_a_retry_outside_the_windows_waits_for_the_next_opening(declare: Declare) -> None:
    """T29."""
    retry = hipq.Fixed(seconds=3_600)
    declare("flaky", retry=retry, time_windows=["11:00-13:00"])(lambda job: 1 / 0)
    job = hipq.enqueue("flaky")

    run_due_jobs()

    job.refresh_from_db()
    assert (job.state, job.scheduled_run_time) == ("retry", tuesday(11))


def test_a_snooze_outside_the_windows_waits_for_the_next_opening(declare: Declare) -> None:
    """T29."""

    @declare("sleepy", time_windows=["11:00-13:00"])
    def sleepy(job: Job) -> None:
        raise hipq.Snooze(3_600)

    job = hipq.enqueue("sleepy")
    run_due_jobs()

    job.refresh_from_db()
    assert job.scheduled_run_time == tuesday(11)
