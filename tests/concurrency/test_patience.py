"""How long statements of a worker's own threads wait for locks: never without a bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import OperationalError, connection

import hipq_django as hipq
from hipq_django.database.errors import is_locked_out
from hipq_django.database.transactions import write_transaction
from hipq_django.engines import engine_for
from hipq_django.models import Job, Queue
from hipq_django.models.catalog import get_queue
from hipq_django.processes import connections
from hipq_django.signals import job_finished, send
from tests.concurrency.sessions import Session
from tests.factories import WorkerFactory

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has no locks of tables"),
]


def lock_timeout() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SHOW lock_timeout")
        return str(cursor.fetchone()[0])


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    get_queue("default", "default")
    usual = lock_timeout()
    yield
    connections.unbound_waits()
    assert lock_timeout() == usual


@pytest.fixture
def bounded() -> None:
    """Bound the waits."""
    connections.bound_waits("default")


def test_no_statement_waits_for_a_locked_table(bounded: None, session: Session) -> None:
    session.begin()
    session(lambda: connection.cursor().execute("LOCK TABLE hipq_queue"))

    for statement in (Queue.objects.count, lambda: Queue.objects.update(paused=True)):
        with pytest.raises(OperationalError) as refused:
            statement()
        assert is_locked_out(refused.value)

    session.roll_back()
    assert Queue.objects.update(paused=True) == 1
    assert not connection.in_atomic_block


def test_new_connections_are_bounded_too(bounded: None, session: Session) -> None:
    connection.close()

    test_no_statement_waits_for_a_locked_table(bounded, session)


def test_a_connection_that_is_lost_at_once_counts_as_lost(bounded: None) -> None:
    """Not as open: code that goes on would use a connection that is not there."""

    def lose(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        raise OperationalError("server closed the connection unexpectedly")

    connection.close()

    with connection.execute_wrapper(lose), pytest.raises(OperationalError, match="unexpectedly"):
        connection.cursor()

    assert Queue.objects.count() == 1


def as_it_is(job: Job, **_: Any) -> None:
    seen.append(lock_timeout())


def on_a_new_connection(job: Job, **_: Any) -> None:
    connection.close()
    as_it_is(job)


def that_raises(job: Job, **_: Any) -> None:
    as_it_is(job)
    raise ZeroDivisionError


seen: list[str] = []


@pytest.mark.parametrize("receiver", [as_it_is, on_a_new_connection, that_raises])
def test_receivers_wait_for_locks_as_the_project_has_it(
    bounded: None, session: Session, receiver: Callable[..., None]
) -> None:
    """A row that a view has locked must not cost their writes."""
    seen.clear()
    job = hipq.enqueue("echo")
    job_finished.connect(receiver)
    try:
        for _ in range(2):
            send(job_finished, job)
            assert lock_timeout() == "100ms"
    finally:
        job_finished.disconnect(receiver)

    assert {*seen} == {session(lock_timeout)}
    test_no_statement_waits_for_a_locked_table(bounded, session)


def test_the_lock_of_a_queue_bounds_what_comes_after_it() -> None:
    """Behind a pooler nothing else does: a claim would wait for any table."""
    queue, worker = get_queue("default", "default"), WorkerFactory.create()

    with write_transaction("default"):
        assert engine_for("default").lock(queue, worker)
        within = lock_timeout()

    assert within == "100ms"
