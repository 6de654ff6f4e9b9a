"""W26: what costs more the more there is of something, with the bound that each has."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from django.db import connection
from django.utils import timezone

import hipq_django as hipq
from benchmarks.measuring.measurements import core_percent
from benchmarks.measuring.postgres import analyze, ask, is_used
from benchmarks.measuring.workers import running
from hipq_django.conf.instances import get_instance
from hipq_django.domain.ordering import Order
from hipq_django.maintenance.early_answers import EarlyAnswers
from hipq_django.maintenance.reranking import find_strays
from hipq_django.models import Answer, Attempt, Job, Queue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.hipq.runner import HipqRunner
    from benchmarks.measuring.runner import Figures

WRITTEN = "SELECT pg_current_wal_lsn() - '0/0'"
BATCH = 1_000


def measure(runner: HipqRunner, sizes: dict[str, Any]) -> Figures:
    """Yield what held jobs, orders, early answers, rate limits and long histories cost."""
    yield from _held(runner, sizes["held"], sizes["settle_seconds"], sizes["idle_seconds"])
    yield "order_ms", _order(runner, sizes["waiting"], sizes["turns"])
    yield "early_ms", _early(sizes["early"], sizes["turns"])
    yield from _rate_limit(sizes["starts"], sizes["turns"])
    yield "decision_ms", _decision(sizes["attempts"], sizes["turns"])


def _held(runner: HipqRunner, number: int, settle_seconds: float, seconds: float) -> Figures:
    """Yield what a worker costs that idles beside jobs which a throttler holds.

    It has read the whole queue in vain before: that it does without a pause.
    """
    runner.enqueue_new(_new("held", n) for n in range(number))
    analyze()
    with running(runner.worker(None, "held")) as workers:
        time.sleep(settle_seconds)
        before, began = ask(WRITTEN) if is_used() else 0, time.monotonic()
        yield "held_core_percent", core_percent(workers, seconds)
        if is_used():
            written = ask(WRITTEN) - before
            yield "held_wal_kb_per_second", written / 1_000 / (time.monotonic() - began)


def _order(runner: HipqRunner, number: int, turns: int) -> float:
    """Return what the search for jobs with the rank of a former order takes."""
    Queue.objects.create(name="ordered", order=Order.PRIORITY)
    runner.enqueue_new(_new("ordered", n) for n in range(number))
    analyze()
    return _milliseconds(lambda: find_strays(get_instance("default")), turns)


def _early(number: int, turns: int) -> float:
    """Return what a look for early answers takes that have missed their job."""
    for part in _parts(number):
        hipq.receive_many([hipq.NewAnswer("ask", f"early-{n}", response=n) for n in part])
    analyze()
    milliseconds = _milliseconds(EarlyAnswers(get_instance("default")).match, turns)
    Answer.objects.all().delete()  # the kit would look at all of them
    return milliseconds


def _rate_limit(starts: int, turns: int) -> Figures:
    """Yield what a claim reads and writes of the starts that a rate limit counts."""
    limit, per = hipq.RateLimit(starts, per=3_600), 1_000
    queue, now = Queue.objects.create(name="limited by rate"), timezone.now()
    for n in range(per):
        limit.admitted(queue, now + timedelta(seconds=3 * n), starts // per)
    candidates: list[Any] = [None] * 8

    def claim() -> None:
        read = Queue.objects.get(pk=queue.pk)
        limit(read, now, [], candidates)
        limit.admitted(read, now, 1)
        Queue.objects.filter(pk=read.pk).update(throttler_state=read.throttler_state)

    queue.save()
    yield "rate_limit_ms", _milliseconds(claim, turns)
    yield "rate_limit_kb", len(json.dumps(queue.throttler_state)) / 1_000


def _decision(attempts: int, turns: int) -> float:
    """Return what it takes to run, fail and decide a job that has failed very often."""
    # The kit counts time by this process's clock, so it is loaded for the last measurement.
    from hipq_django import testing

    @hipq.job_type("stubborn", retry=hipq.Fixed(seconds=3_600, max_attempts=2 * attempts))
    def stubborn(_: hipq.Job) -> NoReturn:
        raise OSError("no answer")

    with connection.cursor() as cursor:  # the kit asks of each waiting job when it is due
        cursor.execute("DELETE FROM hipq_job")
    job, seconds = hipq.enqueue("stubborn"), 0.0
    testing.run_due_jobs("default", raise_errors=False)
    for part in _parts(attempts):
        Attempt.objects.bulk_create(
            Attempt(job=job, attempt=n + 2, failures=n + 2, error="OSError: no answer")
            for n in part
        )
    Job.objects.filter(pk=job.pk).update(attempt=attempts + 1)
    analyze()
    for _ in range(turns):
        hipq.run_now(job)
        began = time.perf_counter()
        ran = testing.run_due_jobs("default", raise_errors=False)
        seconds += time.perf_counter() - began
        assert ran == 1, ran
    return 1_000 * seconds / turns


def _new(queue: str, number: int) -> hipq.NewJob:
    return hipq.NewJob("work", {"kind": "noop", "number": number}, queue=queue)


def _parts(number: int) -> Iterator[range]:
    for start in range(0, number, BATCH):
        yield range(start, min(start + BATCH, number))


def _milliseconds(step: Callable[[], object], turns: int) -> float:
    step()
    began = time.perf_counter()
    for _ in range(turns):
        step()
    return 1_000 * (time.perf_counter() - began) / turns
