"""The throttle limit: factors, waiting jobs, changes at run time."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

import hipq_django as hipq
from hipq_django import transitions
from hipq_django.models import Job, Queue
from hipq_django.scheduler.context import PAGE_SIZE
from tests.hand_worker import PROBE, HandWorker
from tests.running import run_due_jobs

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]

CLAIM = re.compile(r"SET state = 'running'|hipq_claim_fitting_\w+\(")
FINISH = re.compile(r"SET state = 'final'|hipq_finish_\w+\(")


def limited(limit: float) -> Queue:
    queue, _ = Queue.objects.update_or_create(
        name="default", defaults={"throttle_limit": Decimal(str(limit))}
    )
    return queue


def enqueue(*factors: float, name: str = "ask", **options: Any) -> list[Job]:
    new = [hipq.NewJob(name, throttle_factor=factor, **options) for factor in factors]
    return hipq.enqueue_many(new)


def running() -> list[float]:
    jobs = Job.objects.running().order_by("pk")
    return [float(job.throttle_factor) for job in jobs]


@pytest.mark.parametrize(
    ("limit", "factors", "started"),
    [
        (10, [2.5] * 25, 4),
        (10, [3] * 5, 3),
        (10, [0.25] * 50, 40),
        (10, [4, 0.5, 3, 2.5, 0.5, 1], 4),
        (10, [30, 0], 2),  # nothing holds a critical job
        (2.5, [1, 1, 1], 2),
        (1, [0.1] * 12, 10),  # exactly, because sums of floats are not
        (0.999, [7] * 25, 25),  # below 1 is no limit
        (-1, [7] * 25, 25),
    ],
)
def test_as_many_jobs_start_as_fit_under_the_limit(
    limit: float, factors: list[float], started: int, start: Any
) -> None:
    """T20."""
    limited(limit)
    enqueue(*factors)

    start()

    assert running() == factors[:started]


def test_jobs_that_wait_for_their_answer_count(start: Any) -> None:
    """T21: the limit protects the other system."""
    limited(2)
    enqueue(1, 1, 1, 1)
    start()

    start()

    assert running() == [1, 1]


@pytest.mark.parametrize("end", [hipq.complete, partial(hipq.fail, error="declined")])
def test_an_answer_makes_room(end: Callable[[str, str], Any], start: Any) -> None:
    """T21."""
    limited(1)
    for key in "abc":
        hipq.enqueue("ask", job_key=key)
    start()

    end("ask", "a")
    start()

    assert [job.job_key for job in Job.objects.running()] == ["b"]


# Critical jobs


def test_a_critical_job_runs_far_behind_a_full_backlog(start: Any) -> None:
    """T20: factor 0 is not counted and never held back by the limit."""
    limited(10)
    enqueue(*[1] * 600)
    critical = enqueue(0, 0, priority=999_999)

    start()

    assert running() == [1] * 10 + [0, 0]
    assert {job.pk for job in critical} <= set(Job.objects.running().values_list("pk", flat=True))


# Heavy jobs


def test_a_heavy_job_is_not_overtaken_by_lighter_ones(start: Any) -> None:
    """T26: strict order."""
    limited(10)
    enqueue(7)
    start()
    enqueue(5, 1, 1, 1)

    start()

    assert running() == [7]


def test_a_job_heavier_than_the_limit_runs_alone(start: Any) -> None:
    """T26."""
    limited(10)
    hipq.enqueue("ask", job_key="a")
    start()
    hipq.enqueue("ask", job_key="heavy", throttle_factor=30)
    hipq.enqueue("ask", job_key="behind")

    start()
    while_a_runs = running()
    hipq.complete("ask", "a")
    start()
    alone = running()
    hipq.complete("ask", "heavy")
    start()

    assert (while_a_runs, alone, running()) == ([1], [30], [1])


# Changes at run time


def test_lowering_the_limit_stops_no_running_job(start: Any) -> None:
    """T25."""
    limited(5)
    for number in range(8):
        hipq.enqueue("ask", job_key=str(number))
    start()

    limited(2)
    start()
    at_once = len(running())
    for number in range(4):
        hipq.complete("ask", str(number))
    start()

    assert at_once == 5
    assert [job.job_key for job in Job.objects.running().order_by("pk")] == ["4", "5"]


def test_raising_the_limit_counts_at_once(start: Any) -> None:
    """T25."""
    limited(1)
    enqueue(*[1] * 10)
    start()

    limited(4)
    start()

    assert len(running()) == 4


def test_each_queue_has_its_own_limit(start: Any) -> None:
    enqueue(*[1] * 5, queue="other")
    start()
    limited(2)
    enqueue(*[1] * 5)

    start()

    names = [job.queue.name for job in Job.objects.running()]
    assert (names.count("default"), names.count("other")) == (2, 5)


@pytest.mark.parametrize("limit", [0, 1])
def test_jobs_of_an_unknown_type_do_not_stand_in_the_way(limit: int, start: Any) -> None:
    """Not even if they are more than a pass reads of the queue at once."""
    limited(limit)
    enqueue(*[1] * 2 * PAGE_SIZE, name="nobody_knows")
    enqueue(1)

    start()

    assert [job.job_type.name for job in Job.objects.running()] == ["ask"]


# Pause


def test_a_paused_queue_starts_nothing(start: Any) -> None:
    queue = limited(0)
    queue.paused = True
    queue.save()
    enqueue(1, 0)

    start()
    paused = running()
    Queue.objects.update(paused=False)
    start()

    assert (paused, running()) == ([], [1, 0])


def test_a_queue_that_is_paused_just_before_the_claim_starts_nothing() -> None:
    limited(10)
    enqueue(1)
    worker = HandWorker()
    due = worker.scheduler.fetch_due()

    Queue.objects.update(paused=True)

    assert not any(worker.scheduler.apply_throttler(due))
    assert running() == []


def test_a_called_queue_is_tried_before_the_look() -> None:
    limited(0)
    worker = HandWorker()
    worker.run_pass()
    [job] = enqueue(1)

    worker.scheduler.rotation.put_first("default")
    with CaptureQueriesContext(connection) as statements:
        claimed = worker.run_pass()

    looks = [query["sql"] for query in statements if PROBE.search(query["sql"])]
    assert (claimed, looks) == ([job], [])


@pytest.mark.parametrize("change", [{"paused": True}, {"throttle_limit": 1}])
def test_a_called_queue_that_was_paused_or_limited_starts_no_more_than_it_may(
    change: dict[str, Any],
) -> None:
    limited(0)
    worker = HandWorker()
    worker.run_pass()
    enqueue(1, 1)
    Queue.objects.update(**change)

    worker.scheduler.rotation.put_first("default")
    worker.run_pass()

    assert running() == ([] if "paused" in change else [1])


@pytest.mark.fast
def test_the_end_of_a_job_and_the_start_of_the_next_are_one_transaction() -> None:
    """So that little of the time at the limit is lost."""
    limited(2)
    first, second, third = enqueue(2, 1, 1, name="echo")
    worker = HandWorker()
    worker.run_pass()
    worker.execute()

    with CaptureQueriesContext(connection) as statements:
        claimed = worker.run_pass()

    texts = [" ".join(query["sql"].split()) for query in statements]
    finish = next(n for n, text in enumerate(texts) if FINISH.search(text))
    claim = next(n for n, text in enumerate(texts) if CLAIM.search(text))
    assert [job.pk for job in claimed] == [second.pk, third.pk]
    assert Job.objects.get(pk=first.pk).outcome == "succeeded"
    assert finish == claim if connection.vendor == "postgresql" else finish < claim
    assert not {"COMMIT", "RELEASE"} & {text.split()[0] for text in texts[finish:claim]}, texts


def test_a_queue_that_is_refilled_all_the_time_keeps_no_other_waiting() -> None:
    limited(1)
    enqueue(*[1] * 500, name="echo")
    worker = HandWorker()
    worker.run_pass()
    other = hipq.enqueue("echo", queue="other")

    while other not in [claim.job for claim in worker.claims]:
        worker.execute()
        worker.run_pass()

    assert Job.objects.waiting().exists()


def test_a_paused_queue_still_takes_answers_and_decides_about_errors(declare: Any) -> None:
    ask = declare("patient", retry=hipq.Fixed(seconds=60))(lambda job: hipq.WAIT)
    ask.on_response(lambda job, response: response)
    one, other = ask.enqueue(job_key="a"), ask.enqueue(job_key="b")
    run_due_jobs()
    Queue.objects.update(paused=True)

    hipq.complete("patient", "a", response="paid")
    hipq.fail("patient", "b", error="declined")
    run_due_jobs()

    one.refresh_from_db()
    other.refresh_from_db()
    assert (one.outcome, other.state) == ("succeeded", "retry")


def test_a_limit_that_is_given_during_a_claim_holds_from_the_next_probe_on() -> None:
    """Who claims from a queue without a limit does not lock its row."""
    jobs, worker = enqueue(1, 1), HandWorker()
    scheduler = worker.scheduler
    seen, path = scheduler.fetch_due(), scheduler.engine

    def limited_after(read: Callable[..., list[Job]]) -> Callable[..., list[Job]]:
        def read_and_limit(*arguments: Any, **options: Any) -> list[Job]:
            if found := read(*arguments, **options):
                Queue.objects.update(throttle_limit=1)
            return found

        return read_and_limit

    with (
        patch.object(transitions, "claim_due", limited_after(transitions.claim_due)),
        patch.object(path, "due", limited_after(path.due)),
    ):
        claims = [claim for claims in scheduler.apply_throttler(seen) for claim in claims]
    enqueue(1)

    assert [claim.job for claim in claims] == jobs
    assert HandWorker().run_pass() == []
