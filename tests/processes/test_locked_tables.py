"""Somebody keeps a table or a row locked: a real worker goes on with the rest, and ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from django.apps import apps
from django.db import connection

import hipq_django as hipq
from hipq_django.models import Job, Queue, Worker
from hipq_django.models.catalog import get_queue
from hipq_django.scheduler.context import TYPES_SECONDS
from tests.concurrency.sessions import Session, wait_until_blocked
from tests.processes.conftest import Process, Workers, eventually

pytestmark = [pytest.mark.processes, pytest.mark.postgres, pytest.mark.django_db(transaction=True)]

NEEDED = {"hipq_job", "hipq_queue", "hipq_jobtype", "hipq_worker"}
"""Without these no job is claimed; all others are beside the way of a plain job."""

TABLES = [
    model._meta.db_table
    for label in ("hipq", "hipq_flow")
    for model in apps.get_app_config(label).get_models()
]

AWAY_SECONDS = 25.0
"""So long a job may take while a table is locked, or after it was.

A slow machine is done before that; what is left alone for its longest pause, 30 s or more, is not.
"""

END_SECONDS = 60.0
"""So long a worker may take to end."""


@contextmanager
def locked(table: str) -> Iterator[None]:
    """Lock a table as a migration does."""
    session = Session()
    session.begin()
    session(lambda: connection.cursor().execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE"))
    try:
        yield
    finally:
        session.close()


def started(workers: Workers, *queues: str) -> Process:
    """Start a worker, and wait until it works: how long Python takes for that does not count."""
    worker = workers.start(*queues)
    eventually(Worker.objects.filter(state="running").exists, "the worker works")
    return worker


def in_time(*jobs: Job) -> None:
    """Wait until these jobs have run, and a plain one."""
    ids = [job.pk for job in (*jobs, hipq.enqueue("quick", {"number": 1}))]
    is_done = Job.objects.filter(pk__in=ids).final().count
    eventually(lambda: is_done() == len(ids), "the jobs have run", seconds=AWAY_SECONDS)


def test_each_table_in_turn(workers: Workers) -> None:
    worker = started(workers)
    in_time()

    for table in TABLES:
        waiting: list[Job] = []
        if table in NEEDED:
            hipq.enqueue("quick", {"number": 2}, delay=TYPES_SECONDS)
        with locked(table):
            if table in NEEDED:
                wait_until_blocked()
            else:
                waiting.append(hipq.enqueue("quick", {"number": 3}, job_key="k", queue="keyed"))
                waiting.append(hipq.enqueue("stumbling"))
                in_time()
        in_time(*waiting)
        assert worker.poll() is None, table

    assert " ERROR " not in workers.log.read_text()
    assert set(Job.objects.values_list("outcome", flat=True)) == {"succeeded"}


def test_a_worker_starts_while_a_queue_is_locked_and_changes_it_later(workers: Workers) -> None:
    workers.environment["HIPQ_TEST_QUEUES"] = '{"bank": {"THROTTLE_LIMIT": 7}}'
    bank = get_queue("default", "bank")
    with closing(Session()) as session:
        session.begin()
        session(lambda: Queue.objects.select_for_update(no_key=True).get(pk=bank.pk))
        started(workers, "bank", "chaos")
        in_time()

    def is_limited() -> bool:
        return Queue.objects.get(pk=bank.pk).is_limited

    eventually(is_limited, "the queue is as the setting has it", seconds=AWAY_SECONDS)
