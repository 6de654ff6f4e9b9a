"""PostgreSQL keeps the plans of functions and of foreign keys for as long as a session lasts.

Made while the tables were small, they have to do for large ones: until their statistics are
renewed, a minute later or when somebody closes a long transaction, nobody makes others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import connection

import hipq_django as hipq
from hipq_django.database import clock
from hipq_django.database.transactions import bounded_transaction
from hipq_django.models import Answer, Job, Queue
from hipq_django.models.catalog import get_queue
from tests.declaring import Declare
from tests.hand_worker import HandWorker
from tests.integration.engines.test_plans import BACKLOG, add_final_jobs, execute, truncate

pytestmark = [pytest.mark.conformance, pytest.mark.postgres, pytest.mark.fast]

FEW = 5
TABLES = ("hipq_job", "hipq_answer", "hipq_attempt")


@pytest.fixture(autouse=True)
def no_autovacuum() -> Iterator[None]:
    """Whose statistics would end the plans."""
    for table in TABLES:
        execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
    yield
    for table in TABLES:
        execute(f"ALTER TABLE {table} RESET (autovacuum_enabled)")


def rows_read() -> int:
    """Return how many rows of the tables that grow were read so far."""
    execute("SELECT pg_stat_force_next_flush()")
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT SUM(seq_tup_read + COALESCE(idx_tup_fetch, 0)) FROM pg_stat_user_tables "
            "WHERE relname = ANY (%s)",
            [list(TABLES)],
        )
        [read] = cursor.fetchone()
    return int(read)


def work_on_all_kinds() -> int:
    """Let jobs succeed, fail, be tried again and be answered; return how many rows that read."""
    before = rows_read()
    earlier = clock.now("default") - timedelta(seconds=1)
    keys = [f"{n}" for n in range(FEW)]
    asking = [hipq.NewJob("ask", job_key=key, queue="q") for key in keys]
    others = [hipq.NewJob(kind, queue="q") for kind in ("echo", "break") * FEW]
    for jobs in (asking, others):
        hipq.enqueue_many(replace(job, scheduled_run_time=earlier) for job in jobs)
        HandWorker("q").run_until_idle()
    answers = [hipq.NewAnswer("ask", key, response="yes") for key in keys]
    with bounded_transaction("default"):  # as a consumer does
        hipq.receive_many(answers)
    read = rows_read() - before
    assert not Job.objects.live().exists()
    return read


def analyze_early_answers() -> None:
    """Leave statistics by which all answers are early, and for one key."""
    Answer.objects.bulk_create(
        Answer(job_type="ask", job_key="0", kind="response", payload=1, status="early")
        for _ in range(1_000)
    )
    execute("ANALYZE hipq_answer")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("analyzed", "limit"),
    [
        (True, 100),
        (False, 0),
        pytest.param(True, 0, marks=pytest.mark.nightly),
        pytest.param(False, 100, marks=pytest.mark.nightly),
    ],
)
def test_they_serve_tables_that_have_grown(declare: Declare, analyzed: bool, limit: int) -> None:
    @declare("break", queue="q", retry=hipq.Fixed(0, max_attempts=3))
    def break_it(job: Job) -> None:
        raise ValueError

    analyze_early_answers()
    truncate()
    queue = get_queue("default", "q")
    Queue.objects.filter(pk=queue.pk).update(throttle_limit=limit)
    if analyzed:
        execute("ANALYZE")
    for _ in range(3):  # a foreign key's plan is kept from the sixth time on
        work_on_all_kinds()

    add_final_jobs()

    assert work_on_all_kinds() < BACKLOG / 10
