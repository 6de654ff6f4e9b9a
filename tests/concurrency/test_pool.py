"""The threads of a worker take up what is handed to them, all at once where there is enough."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from decimal import getcontext
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.cache import caches
from django.core.cache.backends.locmem import LocMemCache
from django.db import connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone, translation
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.database.clock import steady
from hipq_django.models import Queue
from hipq_django.processes.pool import ThreadPool
from hipq_django.transitions.values import Claim, Succeeded
from tests.concurrency.sessions import PATIENCE_SECONDS
from tests.declaring import Declare
from tests.hand_worker import HandWorker
from tests.processes.conftest import eventually
from tests.threads import Crew, reservations_last, working

pytestmark = pytest.mark.django_db(transaction=True)

THREADS = 6


@pytest.mark.parametrize("portions", [[THREADS], [1, THREADS - 1]])
def test_all_threads_work_at_once(declare: Declare, portions: list[int]) -> None:
    """However the jobs come: a thread that takes one up sees to it that the next one is."""
    together = threading.Barrier(THREADS, timeout=PATIENCE_SECONDS)

    @declare("meet")
    def meet(job: Any) -> None:
        together.wait()

    hipq.enqueue_many([hipq.NewJob("meet")] * THREADS * 3)
    worker = HandWorker()
    worker.run_pass()
    with working(Crew(THREADS)) as crew:
        for _ in range(3):
            for number in portions:
                claims = [worker.claims.pop() for _ in range(number)]
                for claim in claims:
                    claim.known_at = steady() + PATIENCE_SECONDS  # however slow the threads are
                crew.batch.add(claims)
                crew.pool.start(claims)
            crew.pool.await_done(PATIENCE_SECONDS)
        results = crew.batch.lease().results

    assert len(results) == THREADS * 3
    assert all(isinstance(result, Succeeded) for result in results)


def test_a_queue_that_has_much_to_do_delays_no_other(declare: Declare) -> None:
    """Behind the first job wait those of its queue; the job of another queue overtakes them."""
    begun, go_on = threading.Event(), threading.Event()
    order: list[str] = []

    @declare("note")
    def note(job: Any) -> None:
        order.append(job.queue.name)
        begun.set()
        go_on.wait(PATIENCE_SECONDS)

    storm, calm = _claims("limited", 3), _claims("default", 2)
    with working(Crew(1)) as crew:
        for claims in (storm, calm):
            crew.batch.add(claims)
            crew.pool.start(claims)
            assert begun.wait(PATIENCE_SECONDS)
        go_on.set()
        crew.pool.await_done(PATIENCE_SECONDS)

    assert order == ["limited", "default", "default", "limited", "limited"]


def _claims(queue: str, number: int, job_type: str = "note") -> list[Claim]:
    """Claims of jobs in a queue, which hold for as long as the test takes."""
    hipq.enqueue_many([hipq.NewJob(job_type, queue=queue)] * number)
    worker = HandWorker(queue)
    worker.run_pass()
    for claim in worker.claims:
        claim.known_at = steady() + PATIENCE_SECONDS
    return worker.claims


MINE: ContextVar[str] = ContextVar("mine", default="fresh")


def _look_and_leave() -> tuple[Any, ...]:
    """Return what a job finds around it, and leave something else there."""
    there = (translation.get_language(), timezone.get_current_timezone_name(), MINE.get())
    found = (*there, getcontext().prec, len(connection.queries), caches["default"])
    translation.activate("de")
    timezone.activate("Asia/Tokyo")
    MINE.set("left")
    getcontext().prec = 3
    Queue.objects.count()
    return found


def test_a_job_has_a_context_of_its_own(
    declare: Declare, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like a request; the caches are those of the thread, and closed after each job."""
    settings.DEBUG = True  # so that Django keeps the queries
    found, closed = list[tuple[Any, ...]](), list[Any]()
    monkeypatch.setattr(LocMemCache, "close", lambda cache: closed.append(cache), raising=False)  # noqa: PLW0108 - bound to the cache

    async def in_a_loop(_: Any) -> None:
        found.append(await sync_to_async(_look_and_leave)())

    declare("sync")(lambda _: found.append(_look_and_leave()))
    declare("async")(in_a_loop)
    with working(Crew(1)) as crew, reservations_last():
        for name in ("sync", "sync", "async", "async", "sync"):
            hipq.enqueue(name)
            eventually(crew.scheduler.run_once, "the job is claimed")
            crew.pool.await_done(PATIENCE_SECONDS)

    assert found[0][:5] == ("en-us", "UTC", "fresh", 28, 0)
    assert found == found[:1] * 5
    assert closed == [found[0][5]] * 5


def test_connections_of_threads_that_a_handler_starts_are_closed_with_them(
    declare: Declare,
) -> None:
    """At once, although each is part of a cycle, for which a worker seldom looks."""
    opened: list[BaseDatabaseWrapper] = []

    def query() -> None:
        Queue.objects.count()
        opened.append(connections["default"])

    @declare("in_threads")
    async def in_threads(job: Any) -> None:
        await asyncio.gather(*(asyncio.to_thread(query) for _ in range(3)))

    [claim] = _claims("default", 1, "in_threads")
    with working(Crew(1)) as crew:
        crew.batch.add([claim])
        crew.pool.start([claim])
        crew.pool.await_done(PATIENCE_SECONDS)
        eventually(lambda: all(one.connection is None for one in opened), "they are closed")

    assert len(opened) == 3


def test_what_hits_a_thread_late_does_not_end_it(
    declare: Declare, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As by a library that raises its timeout in the thread of a handler that has just ended."""
    declare("note")(lambda job: None)
    claims = _claims("default", 3)
    hits, real = [SystemExit("late")], ThreadPool._take_next

    def take_next(pool: ThreadPool, own: Any) -> Claim | None:
        if hits and pool.backlog == 1:
            raise hits.pop()
        return real(pool, own)

    monkeypatch.setattr(ThreadPool, "_take_next", take_next)
    with working(Crew(1)) as crew:
        crew.batch.add(claims)
        crew.pool.start(claims)
        crew.pool.await_done(PATIENCE_SECONDS)
        results = crew.batch.lease().results

    assert [type(result) for result in results] == [Succeeded] * 3
    assert "event=thread_hit" in caplog.text
