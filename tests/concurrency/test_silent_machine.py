"""A machine that falls silent in a transaction keeps nobody's rows for longer than its silence."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from django.db import Error, connection, transaction
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.conf.instances import get_instance
from hipq_django.database.transactions import worker_transaction
from hipq_django.maintenance import recovery, retention
from hipq_django.models import Job, Queue
from tests.concurrency.sessions import PATIENCE_SECONDS, Session
from tests.declaring import Declare
from tests.hand_worker import HandWorker
from tests.processes.conftest import eventually

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite locks no rows"),
]

BEAT = 0.2

Step = Callable[[], Any]


class SilentMachine:
    """Falls silent in the first transaction in which it has locked or written something."""

    def __init__(self) -> None:
        self.is_silent = threading.Event()
        self.wakes = threading.Event()
        self.status = ""
        """Of its transaction at that moment: soon after it the server ends it."""

    def run(self, step: Step) -> None:
        with connection.execute_wrapper(self._execute), suppress(Error):
            step()

    def _execute(self, execute: Any, sql: str, *rest: Any) -> Any:
        result = execute(sql, *rest)
        locks = sql.lstrip().startswith(("UPDATE", "INSERT", "DELETE", "WITH"))
        locks = locks or "FOR NO KEY UPDATE" in sql
        if connection.in_atomic_block and (locks or "hipq_lock_" in sql or "hipq_due_" in sql):
            self.status = connection.connection.info.transaction_status.name
            self.is_silent.set()
            self.wakes.wait(PATIENCE_SECONDS)
        return result


def open_transactions() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' "
            "AND datname = current_database() AND pid <> pg_backend_pid()"
        )
        return int(cursor.fetchone()[0])


# What it is doing as it falls silent


@pytest.fixture(autouse=True)
def beat(settings: Settings) -> None:
    settings.HIPQ = {"default": {"HEARTBEAT_SECONDS": BEAT}}


@pytest.fixture
def machine() -> Iterator[SilentMachine]:
    machine = SilentMachine()
    yield machine
    machine.wakes.set()


def claiming(declare: Declare, **options: Any) -> Step:
    hipq.enqueue("echo", **options)
    return HandWorker().run_pass


def claim_with_windows(declare: Declare) -> Step:
    return claiming(declare, time_windows=["00:00-12:00", "12:00-00:00"])


def claim_from_a_limited_queue(declare: Declare) -> Step:
    claiming(declare, throttle_factor=0)
    Queue.objects.update(throttle_limit=2)
    worker = HandWorker()
    worker.row.heartbeat_seconds = BEAT
    return worker.run_pass


def write_a_failure(declare: Declare) -> Step:
    """One that is answered meanwhile: it is looked at row by row."""
    declare("fails")(lambda job: 1 / 0).on_response(lambda job, response: response)
    hipq.enqueue("fails", job_key="k")
    worker = HandWorker()
    worker.run_pass()
    worker.execute()
    hipq.complete("fails", "k", "yes")
    return worker.save


def take_over(declare: Declare) -> Step:
    hipq.enqueue("echo")
    worker = HandWorker.crashed()
    worker.row.state = "lost"
    worker.row.save()
    return lambda: recovery.recover_lost(get_instance())


def prune(declare: Declare) -> Step:
    hipq.enqueue("echo")
    HandWorker().work()
    return lambda: retention.prune(get_instance(), days=0)


def handling(declare: Declare) -> Job:
    """Return the job that a handler has in its hands."""
    hipq.enqueue("echo", job_key="k")
    worker = HandWorker()
    [job] = worker.run_pass()
    return job


def report(declare: Declare) -> Step:
    return partial(handling(declare).report, 50, "half way")


@pytest.mark.parametrize(
    "prepare",
    [
        report,
        claim_with_windows,
        claim_from_a_limited_queue,
        write_a_failure,
        take_over,
        prune,
    ],
)
def test_what_it_had_locked_is_free_after_its_silence(
    prepare: Callable[[Declare], Step], machine: SilentMachine, declare: Declare, session: Session
) -> None:
    step = prepare(declare)
    running = session.start(lambda: machine.run(step))
    try:
        assert machine.is_silent.wait(PATIENCE_SECONDS), "it has locked nothing"
        assert machine.status == "INTRANS"

        eventually(lambda: not open_transactions(), "the server ends its transaction")

        for rows in (Job.objects.all(), Queue.objects.all()):
            with transaction.atomic():
                assert len(rows) == len(rows.select_for_update(skip_locked=True, of=("self",)))
    finally:
        machine.wakes.set()
    running.result(PATIENCE_SECONDS)


def test_a_limit_of_the_session_is_left_as_it_is() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET idle_in_transaction_session_timeout = '7s'")
        with worker_transaction("default"):
            cursor.execute("SHOW idle_in_transaction_session_timeout")
            assert cursor.fetchone() == ("7s",)
        cursor.execute("RESET idle_in_transaction_session_timeout")


def test_a_transaction_of_the_caller_is_left_as_it_is() -> None:
    """The test kit runs in a test's transaction, which a debugger may hold for long."""
    with transaction.atomic(), connection.cursor() as cursor:
        with worker_transaction("default"):
            pass
        cursor.execute("SHOW idle_in_transaction_session_timeout")
        assert cursor.fetchone() == ("0",)
