"""A consumer beside the transactions of others."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.answers import arrival
from hipq_django.database import isolation
from hipq_django.models import Answer, Job, Worker
from hipq_django.processes.consumer import ConsumerProcess
from tests import mailbox as module
from tests.concurrency.sessions import PATIENCE_SECONDS, Session, is_connected
from tests.mailbox import Mailbox
from tests.running import run_due_jobs

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has no locks of rows"),
]


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> ConsumerProcess:
    """A consumer whose mailbox has the responses of two jobs, and then stops it."""
    mailbox = Mailbox()
    monkeypatch.setattr(module, "mailbox", mailbox)
    monkeypatch.setattr(isolation, "PATIENCE_SECONDS", 0.2)
    source = {"SOURCE": "tests.mailbox.MailboxSource", "MAP": "tests.mailbox.read"}
    settings.HIPQ = {"default": {"SOURCES": {"post": source}}}
    hipq.enqueue_many([hipq.NewJob("ask", job_key=f"k-{n}") for n in range(2)])
    run_due_jobs()
    mailbox.put(*[json.dumps({"key": f"k-{n}", "response": n}).encode() for n in range(2)])
    process = ConsumerProcess("post")
    mailbox.stop = process.stop
    return process


def settled() -> list[str]:
    return list(Job.objects.order_by("pk").values_list("outcome", flat=True))


def wait_for(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def waiting(
    consumer: ConsumerProcess, session: Session, caplog: pytest.LogCaptureFixture
) -> Iterator[Future[None]]:
    """The run of the consumer, which has said that it waits for a job that `session` has locked."""
    other = Session()
    session.begin()
    session(lambda: Job.objects.select_for_update().get(job_key="k-0"))
    run = other.start(consumer.run)
    said = re.compile(r"event=row_left_alone .*message_id=m-0 .*lock timeout")
    wait_for(lambda: said.search(caplog.text))
    yield run
    if not run.done():
        consumer.stop()
    other.close()


def test_a_job_that_somebody_has_locked_is_waited_for_aloud(
    waiting: Future[None], session: Session
) -> None:
    """Those that were received with it are stored; all of them are acknowledged together."""
    wait_for(lambda: settled() == ["NONE", "succeeded"])
    assert len(module.mailbox.unacknowledged) == 2
    session.roll_back()

    waiting.result(PATIENCE_SECONDS)
    assert settled() == ["succeeded", "succeeded"]


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
@pytest.mark.parametrize("asking", ["before_receiving", "before_reading"])
def test_a_database_that_only_the_project_reads_is_reached_again_after_its_restart(
    asking: str, consumer: ConsumerProcess, session: Session
) -> None:
    session.end_that_of_the_test("other")
    setattr(module.mailbox, asking, ContentType.objects.using("other").exists)

    consumer.run()

    assert settled() == ["succeeded", "succeeded"]
    assert not Answer.objects.filter(kind="malformed").exists()


def test_a_transaction_that_the_server_ends_costs_no_answer(
    consumer: ConsumerProcess, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a moment in which the process was suspended."""
    real, calls = arrival.receive_together, []
    limit = "SELECT set_config('idle_in_transaction_session_timeout', '100ms', true)"

    def receive(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 1:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_backend_pid()")
                [pid] = cursor.fetchone()
                cursor.execute(limit)
            wait_for(lambda: not session(lambda: is_connected(pid)))
        return real(*args)

    monkeypatch.setattr(arrival, "receive_together", receive)

    consumer.run()

    assert settled() == ["succeeded", "succeeded"]
    assert not Answer.objects.filter(kind="malformed").exists()


def test_an_idle_consumer_that_was_declared_lost_registers_again(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    mailbox, other = Mailbox(), Session()
    monkeypatch.setattr(module, "mailbox", mailbox)
    source = {"SOURCE": "tests.mailbox.MailboxSource", "MAP": "tests.mailbox.read"}
    settings.HIPQ = {"default": {"SOURCES": {"post": source}, "HEARTBEAT_SECONDS": 0.1}}
    mailbox.stays_for = 1_000_000
    process = ConsumerProcess("post")
    mailbox.stop = process.stop
    live = Worker.objects.filter(state__in=Worker.LIVE)
    run = other.start(process.run)
    wait_for(live.exists)
    lost = live.get()

    Worker.objects.filter(pk=lost.pk).update(state="lost")

    wait_for(lambda: live.exclude(pk=lost.pk).exists())
    process.stop()
    run.result(PATIENCE_SECONDS)
    other.close()


def test_a_consumer_that_waits_for_a_locked_job_ends_when_it_is_told_to(
    waiting: Future[None],
    consumer: ConsumerProcess,
    session: Session,
    caplog: pytest.LogCaptureFixture,
) -> None:
    consumer.stop()

    waiting.result(PATIENCE_SECONDS)
    session.roll_back()
    assert "messages_given_up" in caplog.text
    assert settled()[0] == "NONE"
    assert len(module.mailbox.unacknowledged) == 2
