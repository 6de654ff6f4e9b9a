"""Behind a pooler that gives each transaction another session: PgBouncer in transaction mode."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing

import pytest
from django.db import connection, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from environ import Env

import hipq_django as hipq
from hipq_django.models import Job
from tests.pgbouncer import transaction_pooler
from tests.processapp.jobs import joined
from tests.processes.conftest import Workers, eventually

pytestmark = [pytest.mark.processes, pytest.mark.postgres]


@pytest.fixture
def pooled(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workers]:
    """Workers, and this process too, reach the database by way of the pooler only."""
    connection = connections["default"]
    connection.ensure_connection()
    with transaction_pooler(connection.connection.info) as address, monkeypatch.context() as patch:
        connection.close()
        by_pooler = {**connection.settings_dict, "OPTIONS": {}, **Env.db_url_config(address)}
        patch.setattr(connection, "settings_dict", by_pooler)
        workers.environment["DATABASE_URL"] = address
        yield workers
        connection.close()


def sessions() -> set[int]:
    """The server's sessions in which ten statements of this one were run."""
    with closing(connection.copy()) as other:
        other.set_autocommit(False)
        session_of(other)  # is taken until the end of a transaction, so that there are two
        session_of(connection)
        other.rollback()
    return {session_of(connection) for _ in range(10)}


def session_of(client: BaseDatabaseWrapper) -> int:
    """The server's session in which a statement is run."""
    with client.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        pid: int = cursor.fetchone()[0]
    return pid


def test_jobs_run_and_answers_arrive_with_one_warning(pooled: Workers) -> None:
    notes = str(pooled.log.with_name("notes"))
    worker = pooled.start()
    eventually(
        lambda: "event=notify_does_not_arrive" in pooled.log.read_text(), "the worker has given up"
    )
    eventually(lambda: len(sessions()) > 1, "statements of one connection run in several sessions")

    hipq.enqueue_many([hipq.NewJob("quick", {"number": n}) for n in range(50)])
    with transaction.atomic():
        for number in range(10):
            hipq.enqueue("quick", {"number": number}, job_key=f"key-{number}")
    for number in range(20):
        hipq.chain(hipq.NewJob("quick", {"number": number}), joined.new())
    asked = hipq.enqueue("asking", {"notes": notes}, job_key="k")
    eventually(lambda: Job.objects.get(pk=asked.pk).is_awaiting_answer, "the request was sent")
    hipq.complete("asking", "k", "yes")
    eventually(lambda: not Job.objects.live().exists(), "all jobs are final")
    worker.send_signal(signal.SIGTERM)

    assert worker.wait(timeout=60) == 0
    assert {job.outcome for job in Job.objects.all()} == {Job.Outcome.SUCCEEDED}
    assert sum(Job.objects.filter(job_type__name="joined").values_list("result", flat=True)) == 190
    [line] = [line for line in pooled.log.read_text().splitlines() if " INFO " not in line]
    assert "event=notify_does_not_arrive" in line
