"""How long statements of a worker's own threads wait for locks: never without a bound."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import OperationalError, connection

from hipq_django.database.errors import is_locked_out
from hipq_django.models import Queue
from hipq_django.models.catalog import get_queue
from hipq_django.processes import patience
from tests.concurrency.sessions import Session

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


def test_others_keep_the_session_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = lock_timeout()
    monkeypatch.setattr(patience, "_set_for_session", lambda connection: False)

    patience.bound_waits("default")
    Queue.objects.count()

    patience.unbound_waits()
    assert lock_timeout() == usual
