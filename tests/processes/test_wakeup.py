"""Idle workers are woken by a commit: these would look only once in an hour otherwise."""

from pathlib import Path

import pytest
from django.db import connection, transaction

import hipq_django as hipq
from hipq_django.database import notify
from hipq_django.models import Job
from tests.processes.conftest import Workers, eventually

pytestmark = [pytest.mark.processes, pytest.mark.postgres]

SELDOM = ("--interval", "3600", "-v0")


@pytest.fixture(autouse=True)
def _each_commit_wakes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit just after another one wakes nobody: workers look often then, but not for long."""
    monkeypatch.setattr(notify, "SHORTEST_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(notify, "_debounces", {})


def is_final(job: Job) -> bool:
    return Job.objects.get(pk=job.pk).is_final


def listeners() -> list[int]:
    """Processes of the database server in which a worker listens."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
            "AND query LIKE 'LISTEN%'"
        )
        return [pid for (pid,) in cursor.fetchall()]


def start_idle(workers: Workers, *queues: str, **environment: str) -> None:
    """Start a worker and wait until it has nothing more to look at often."""
    workers.start(*queues, *SELDOM, **environment)
    eventually(lambda: len(listeners()) == 1, "the worker listens")
    first = hipq.enqueue("quick", {"number": 1})
    eventually(lambda: is_final(first), "the first job has run")


def test_a_commit_wakes_an_idle_worker(workers: Workers) -> None:
    start_idle(workers)

    with transaction.atomic():
        job = hipq.enqueue("quick", {"number": 2})

    eventually(lambda: is_final(job), "the job has run")


def test_bulk_enqueues_answers_and_operators_wake_it_too(workers: Workers, tmp_path: Path) -> None:
    start_idle(workers)
    notes = str(tmp_path / "notes")

    many = hipq.enqueue_many([hipq.NewJob("quick", {"number": n}) for n in range(50)])
    eventually(lambda: all(map(is_final, many)), "all have run")
    asked = hipq.enqueue("asking", {"notes": notes}, job_key="k")
    eventually(lambda: Job.objects.get(pk=asked.pk).is_awaiting_answer, "the request was sent")
    hipq.complete("asking", "k", "yes")
    eventually(lambda: is_final(asked), "the response handler has run")
    again = hipq.requeue(many[0])
    eventually(lambda: is_final(again), "the requeued job has run")


def test_it_listens_again_when_its_connection_was_lost(workers: Workers) -> None:
    start_idle(workers)
    [lost] = listeners()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s)", [lost])
    eventually(lambda: listeners() and listeners() != [lost], "the worker listens again")

    job = hipq.enqueue("quick", {"number": 2})

    eventually(lambda: is_final(job), "the job has run")


def test_without_notify_nobody_listens_and_workers_poll(workers: Workers) -> None:
    workers.start("-v0", HIPQ_TEST_NOTIFY="no")

    job = hipq.enqueue("quick", {"number": 1})

    eventually(lambda: is_final(job), "the job has run")
    assert listeners() == []
