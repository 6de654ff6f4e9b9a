"""An answer is stored while the claim of its job is under way."""

from __future__ import annotations

import pytest
from django.db import connection

import hipq_django as hipq
from hipq_django.engines.statements import IS_EARLY
from tests.concurrency.sessions import Session, wait_until_blocked
from tests.factories import AnswerFactory

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]

LOCK = 4711


def asked_late(job: hipq.Job) -> bool:
    """Ask whether an answer came early, in a statement that waits for a lock before it asks."""
    text = f"""
        SELECT (SELECT found FROM {IS_EARLY.function}(key, %s))
        FROM (SELECT %s AS key, pg_advisory_xact_lock_shared(%s) OFFSET 0) waited"""
    with connection.cursor() as cursor:
        cursor.execute(text, [job.job_type_id, job.job_key, LOCK])
        [(found,)] = cursor.fetchall()
    return bool(found)


def test_a_claim_sees_what_was_stored_after_it_began(session: Session) -> None:
    """It asks when it has the job's lock, and who stored the answer had it before."""
    job = hipq.enqueue("ask", job_key="bank-77")
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s)", [LOCK])
        asked = session.start(lambda: asked_late(job))
        wait_until_blocked()

        AnswerFactory.create(job_type="ask", job_key="bank-77")
        cursor.execute("SELECT pg_advisory_unlock(%s)", [LOCK])

    assert asked.result(30)
