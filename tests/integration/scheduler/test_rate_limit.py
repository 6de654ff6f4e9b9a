"""The rate limit in the scheduler: exact over all workers, in any window."""

from __future__ import annotations

from typing import Any

import pytest

import hipq_django as hipq
from hipq_django.database import clock
from hipq_django.models import Job, Queue
from tests.hand_worker import HandWorker
from tests.integration.conftest import ConfigureQueue
from tests.passing import Passing
from tests.running import run_due_jobs

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]

MOMENT = 5.0
"""More than a job may take from its admission to its start: a start counts as the latest one."""


def enqueue(number: int, **options: Any) -> None:
    hipq.enqueue_many([hipq.NewJob("ask", **options) for _ in range(number)])


def started() -> int:
    return Job.objects.running().count()


def test_no_more_jobs_start_in_a_minute_than_allowed(
    configure_queue: ConfigureQueue, frozen_time: Any, start: Any
) -> None:
    configure_queue(hipq.RateLimit(3, per=60))
    enqueue(10)

    counts = []
    for seconds in (0, 30, 30, MOMENT, 60, MOMENT):
        frozen_time.shift(seconds)
        start()
        counts.append(started())

    assert counts == [3, 3, 3, 6, 6, 9]


def test_the_window_slides(configure_queue: ConfigureQueue, frozen_time: Any, start: Any) -> None:
    configure_queue(hipq.RateLimit(2, per=60))
    enqueue(1)
    start()
    frozen_time.shift(40)
    enqueue(5)
    start()
    at_40 = started()
    frozen_time.shift(20 + MOMENT)
    start()
    at_60 = started()
    frozen_time.shift(40 - MOMENT)
    start()

    assert (at_40, at_60, started()) == (2, 3, 3)


def test_jobs_that_were_held_by_the_limit_have_not_started(
    configure_queue: ConfigureQueue, start: Any
) -> None:
    configure_queue(hipq.RateLimit(5, per=60), THROTTLE_LIMIT=2)
    enqueue(10)
    start()

    Queue.objects.update(throttle_limit=9)
    start()

    assert started() == 5


def test_a_critical_job_counts_as_a_start(configure_queue: ConfigureQueue) -> None:
    """Two may start: not one that fits and two critical ones behind a heavy one."""
    configure_queue(hipq.RateLimit(2, per=60), THROTTLE_LIMIT=2)
    for factor in (1, 2, 0, 0):
        hipq.enqueue("ask", throttle_factor=factor)

    HandWorker().work()

    assert started() == 2


def test_the_rate_holds_over_more_jobs_than_one_page(configure_queue: ConfigureQueue) -> None:
    configure_queue(hipq.RateLimit(550, per=60))
    enqueue(700)

    HandWorker().work()

    assert started() == 550


def test_a_retry_is_a_start(
    configure_queue: ConfigureQueue, declare: Any, frozen_time: Any
) -> None:
    configure_queue(hipq.RateLimit(2, per=60))
    declare("flaky", retry=hipq.Fixed(seconds=0, max_attempts=9))(lambda job: 1 / 0)
    job = hipq.enqueue("flaky")

    run_due_jobs()
    job.refresh_from_db()
    at_once = job.attempt
    frozen_time.shift(60 + MOMENT)
    run_due_jobs()
    job.refresh_from_db()

    assert (at_once, job.attempt) == (2, 4)


def test_a_release_that_changes_the_limit_goes_on_from_the_starts_before(
    configure_queue: ConfigureQueue, frozen_time: Any, start: Any
) -> None:
    enqueue(20)
    counts = []
    for limit in (hipq.RateLimit(6, per=60), hipq.RateLimit(8, per=90), hipq.RateLimit(6, per=60)):
        configure_queue(limit)
        start()
        frozen_time.shift(1)
        counts.append(started())

    assert counts == [6, 8, 8]
    names = ["RateLimit(6, 60)", "RateLimit(8, 90)", "RateLimits", "RateLimits before"]
    assert sorted(Queue.objects.get(name="default").throttler_state) == names


@pytest.mark.parametrize("grows", [False, True], ids=["held up", "its delay grows"])
def test_a_worker_starts_no_job_later_than_is_counted(
    configure_queue: ConfigureQueue, monkeypatch: pytest.MonkeyPatch, grows: bool
) -> None:
    """It may be held up between its looks at the two clocks, and find its delay too short."""
    passing, real = Passing(monkeypatch), clock.now
    moments: dict[Any, float] = {}
    told: list[float] = []
    worker = HandWorker()

    def now(using: str) -> Any:
        moment, found = clock.steady(), real(using)
        moments[found] = moment
        passing.seconds += 0 if grows else 10
        return found

    class Counting:
        """A throttler that counts starts."""

        def __call__(self, queue: Queue, now: Any, running: Any, asked: Any) -> Any:
            return [hipq.Run() for _ in asked]

        def admitted(self, queue: Queue, now: Any, count: int, latest: Any) -> None:
            """Note until when the starts are counted."""
            told.append(moments[now] + (latest - now).total_seconds())
            if grows:
                worker.scheduler.start_delay.too_short()

    configure_queue(Counting())
    enqueue(1)
    monkeypatch.setattr(clock, "now", now)
    worker.run_pass()

    [claim] = worker.claims
    assert claim.start_by <= told[0]
