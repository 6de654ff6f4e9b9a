"""How long statements of a worker's own threads wait for locks: never without a bound."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import OperationalError, connection

from hipq_django.database.errors import is_locked_out
from hipq_django.database.transactions import write_transaction
from hipq_django.engines import engine_for
from hipq_django.models import Queue
from hipq_django.models.catalog import get_queue
from hipq_django.processes import patience
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
    patience.unbound_waits()
    assert lock_timeout() == usual


@pytest.fixture(params=["a session of its own", "a session of several clients"])
def bounded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bound the waits; what tells a pooler is tested where there is one."""
    if request.param != "a session of its own":
        monkeypatch.setattr(patience, "_set_for_session", lambda connection: False)
    patience.bound_waits("default")


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


def test_a_connection_that_breaks_at_that_moment_ends_nobody(session: Session) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        mine = cursor.fetchone()
    session(lambda: connection.cursor().execute("SELECT pg_terminate_backend(%s)", mine))

    patience.bound_waits("default")

    assert lock_timeout() == "100ms"


def test_others_keep_the_session_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = lock_timeout()
    monkeypatch.setattr(patience, "_set_for_session", lambda connection: False)

    patience.bound_waits("default")
    Queue.objects.count()

    patience.unbound_waits()
    assert lock_timeout() == usual


def test_the_lock_of_a_queue_bounds_what_comes_after_it() -> None:
    """In a session of several clients nothing else does: a claim would wait for any table."""
    queue, worker = get_queue("default", "default"), WorkerFactory.create()

    with write_transaction("default"):
        assert engine_for("default").lock(queue, worker)
        within = lock_timeout()

    assert within == "100ms"
