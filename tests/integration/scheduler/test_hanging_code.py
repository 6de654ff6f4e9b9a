"""Code of the project that a pass waits for, and that does not return, is interrupted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from django.db import connection

import hipq_django as hipq
from hipq_django.domain.bounded_calls import DidNotReturnError, bounded
from hipq_django.models import Job, Queue
from hipq_django.processes.interrupting import Interrupter
from hipq_django.signals import job_finished, job_started
from tests.hand_worker import HandWorker
from tests.integration.conftest import ConfigureQueue

pytestmark = pytest.mark.django_db(transaction=True)

SECONDS = 0.4


@pytest.fixture(autouse=True)
def interrupter() -> Iterator[None]:
    """What the watchdog of a worker does, more often."""
    interrupter, ended = Interrupter(SECONDS, SECONDS / 2), threading.Event()

    def look() -> None:
        while not ended.wait(SECONDS / 2):  # psycopg needs 0.1 s to notice a signal
            interrupter.look()

    looking = threading.Thread(target=look)
    interrupter.open()
    looking.start()
    yield
    ended.set()
    looking.join()
    interrupter.close()


def hang(*_: Any, **__: Any) -> Any:
    threading.Event().wait()


def hang_after_an_error(*_: Any, **__: Any) -> Any:
    try:
        raise KeyError("card 4111")
    except KeyError:
        hang()


def hang_in_a_query(*_: Any) -> Any:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(1000)")


def hang_where_errors_are_hidden(*_: Any) -> Any:
    with suppress(Exception):
        hang()


class HangingHook:
    """A throttler whose hook does not return."""

    def __call__(self, queue: Any, now: Any, running: Any, candidates: Any) -> list[Any]:
        return [hipq.Run() for _ in candidates]

    admitted = hang


HANGING = [
    hang,
    hang_after_an_error,
    hang_where_errors_are_hidden,
    HangingHook(),
    pytest.param(hang_in_a_query, marks=pytest.mark.postgres),
]


@pytest.mark.conformance
@pytest.mark.parametrize("throttler", HANGING)
def test_it_holds_its_queue_and_no_other(
    throttler: Callable[..., Any], configure_queue: ConfigureQueue, caplog: pytest.LogCaptureFixture
) -> None:
    configure_queue(throttler)
    hipq.enqueue("echo")
    worker = HandWorker()

    worker.run_pass()
    blocked = Queue.objects.get().throttler_problem
    hipq.enqueue("echo", queue="other")
    claimed = worker.run_pass()

    assert [job.queue.name for job in claimed] == ["other"]
    assert "did not return within 0.4 s" in blocked
    [record] = [r for r in caplog.records if getattr(r, "event", "") == "queue_blocked"]
    assert "test_hanging_code.py" in str(record.exc_text)
    assert "4111" not in f"{record.exc_text} {caplog.text}"


def test_it_is_left_alone_for_a_while(configure_queue: ConfigureQueue) -> None:
    asked = []

    def throttler(*_: Any) -> Any:
        asked.append("once")
        hang()

    configure_queue(throttler)
    hipq.enqueue("echo")
    worker = HandWorker()
    worker.run_pass()
    hipq.enqueue("echo")  # which would let any other queue be looked at again at once
    worker.scheduler.rotation.put_first("default")
    worker.run_pass()

    assert asked == ["once"]


def test_it_is_asked_again_and_the_queue_goes_on(configure_queue: ConfigureQueue) -> None:
    first = [True]

    def hang_once(queue: Any, now: Any, running: Any, candidates: Any) -> list[Any]:
        if first:
            first.clear()
            hang()
        return [hipq.Run() for _ in candidates]

    configure_queue(hang_once)
    hipq.enqueue("echo")
    worker = HandWorker()
    worker.run_pass()
    worker.scheduler.forget_pauses()

    assert len(worker.run_pass()) == 1
    assert Queue.objects.get().throttler_problem == "NONE"


@pytest.mark.parametrize("signal", [job_started, job_finished])
def test_a_receiver_that_does_not_return_harms_no_job(
    signal: Any, caplog: pytest.LogCaptureFixture
) -> None:
    job = hipq.enqueue("echo")
    signal.connect(hang)
    try:
        HandWorker().work()
    finally:
        signal.disconnect(hang)

    assert Job.objects.get(pk=job.pk).outcome == "succeeded"
    [record] = [r for r in caplog.records if getattr(r, "event", "") == "receiver_hangs"]
    assert "in hang" in str(record.exc_text)


def test_only_the_main_thread_is_interrupted() -> None:
    ended = threading.Event()
    other = threading.Thread(target=lambda: bounded(ended.wait))
    other.start()

    with pytest.raises(DidNotReturnError):
        bounded(hang)
    is_alive = other.is_alive()
    ended.set()
    other.join()

    assert is_alive


def test_what_calls_it_is_not_interrupted() -> None:
    for _ in range(5):
        with suppress(DidNotReturnError):
            bounded(lambda: threading.Event().wait(SECONDS))
        for _ in range(1000):
            bounded(int)
