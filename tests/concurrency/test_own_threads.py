"""A worker's own threads live as long as the worker, whatever is raised in them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest
from django.db import connection

from hipq_django.conf.instances import get_instance
from hipq_django.database import notify
from hipq_django.models import Worker
from hipq_django.processes import connections, watchdog
from hipq_django.processes.heartbeat import Heartbeat
from hipq_django.processes.options import WorkerOptions
from hipq_django.processes.own_threads import Listener, OwnThread
from hipq_django.processes.stop_signals import ENDED_ITSELF
from hipq_django.processes.watchdog import LOOKS, Watchdog
from hipq_django.processes.worker import WorkerProcess
from tests.concurrency.sessions import PATIENCE_SECONDS
from tests.factories import WorkerFactory
from tests.processes.conftest import eventually

pytestmark = pytest.mark.django_db(transaction=True)


class RaisesOnce:
    """A fault of the code that a thread calls, the first time."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, *_: object) -> int:
        self.calls += 1
        if self.calls == 1:
            raise ValueError("oops")
        return self.calls


@contextmanager
def running(thread: OwnThread | Watchdog) -> Iterator[None]:
    thread.open()
    try:
        yield
    finally:
        thread.close()
        for one in threading.enumerate():
            if one.name.startswith("hipq-"):
                one.join(PATIENCE_SECONDS)


def said(caplog: pytest.LogCaptureFixture, event: str) -> bool:
    """Whether the log has the event, with what was raised."""
    records = [one for one in caplog.records if getattr(one, "event", "") == event]
    return any("oops" in str(one.exc_info) for one in records)


def heart(fault: RaisesOnce) -> OwnThread | Watchdog:
    worker = WorkerFactory.create(heartbeat_seconds=0.01)
    return Heartbeat(worker, lambda: {"executing": fault()}, lambda: None)


def listener(fault: RaisesOnce) -> OwnThread | Watchdog:
    def wake(queue: str) -> None:
        fault(queue)

    return Listener(WorkerFactory.create(), get_instance(), wake)


def dog(fault: RaisesOnce) -> OwnThread | Watchdog:
    return Watchdog("w", 0.01, fault)


@pytest.mark.parametrize(
    ("make", "event"),
    [
        (heart, "heartbeat_failed"),
        (dog, "watchdog_failed"),
        pytest.param(listener, "listening_failed", marks=pytest.mark.postgres),
    ],
)
def test_a_thread_goes_on_after_a_fault(
    make: Callable[[RaisesOnce], OwnThread | Watchdog],
    event: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(watchdog, "MIN_SECONDS", 0.01)
    fault = RaisesOnce()

    def has_gone_on() -> bool:
        if make is listener:
            notify.send(connection, "default", "a")
        return fault.calls > 2

    with running(make(fault)):
        eventually(has_gone_on, "it goes on")

    assert said(caplog, event)


@pytest.mark.postgres
@pytest.mark.parametrize("who", ["heartbeat", "worker"])
def test_a_connection_that_was_ended_while_it_was_idle_is_opened_anew(
    who: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As by `idle_session_timeout` or a pooler: that is no silence of the database."""
    monkeypatch.setattr(connections, "IDLE_SECONDS", -1.0)
    heart = Heartbeat(WorkerFactory.create(), dict, lambda: None)
    process = WorkerProcess(WorkerOptions())
    uses: dict[str, Callable[[], bool]] = {
        "heartbeat": heart.beat,
        "worker": lambda: process._guarded(Worker.objects.exists),
    }
    use = uses[who]
    assert use()
    began = heart.unbroken_since

    with connection.cursor() as cursor, closing(connection.copy()) as other:
        cursor.execute("SELECT pg_backend_pid()")
        [pid] = cursor.fetchone()
        with other.cursor() as ending:
            ending.execute("SELECT pg_terminate_backend(%s, 10000)", [pid])

    assert use()
    assert heart.unbroken_since == began
    assert not [one for one in caplog.records if getattr(one, "event", "") == "back_off"]


def test_the_watchdog_ends_a_process_whose_pass_hangs_while_the_heart_beats(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A heart that does not beat either is a matter of the database."""
    for bound in ("PASS_SECONDS", "MIN_SECONDS"):
        monkeypatch.setattr(watchdog, bound, 0.05)
    codes: list[int] = []
    monkeypatch.setattr(watchdog, "leave", codes.append)
    heart, looks = Heartbeat(WorkerFactory.create(), dict, lambda: None), 0
    beats = 0.0

    def same_pass() -> str:
        nonlocal looks
        looks += 1
        heart.last += beats
        return "the same pass"

    watching = Watchdog("w", 0.05, same_pass)
    watching.heartbeat, watching.doing = heart, lambda: {"queue": "bank"}
    with running(watching):
        eventually(lambda: looks > 3 * LOOKS, "it has looked for long")
        beats = 1.0
        before = list(codes)
        eventually(lambda: codes, "it ends")

    assert (before, codes[0]) == ([], ENDED_ITSELF)
    [*_, record] = [r for r in caplog.records if getattr(r, "event", "") == "pass_hangs"]
    assert (record.queue, "eventually" in str(record.exc_text)) == ("bank", True)  # type: ignore[attr-defined]  # a field of the event
