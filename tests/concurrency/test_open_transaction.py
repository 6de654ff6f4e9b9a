"""A transaction that is open anywhere keeps the dead rows of all that is done meanwhile."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

import hipq_django as hipq
from hipq_django.models.catalog import get_queue
from hipq_django.scheduler import polling
from tests.concurrency.sessions import Session
from tests.hand_worker import HandWorker
from tests.plans import assert_good, watched_plans

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite keeps no dead rows"),
]

DONE = 6_000
NEW = 20


def test_few_looks_go_through_the_dead_rows(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first look takes too long; from then on claims and looks begin behind them."""
    monkeypatch.setattr(polling, "QUICK_SECONDS", 0.0)
    monkeypatch.setattr(polling, "SHARE", 1e-9)
    get_queue("default", "default")
    session.begin()
    session(_take_an_id)
    worker = HandWorker(threads=500)
    long_ago = timezone.now() - timedelta(minutes=1)
    hipq.enqueue_many(hipq.NewJob("echo", scheduled_run_time=long_ago) for _ in range(DONE))
    worker.run_until_idle()

    hipq.enqueue_many(hipq.NewJob("echo") for _ in range(NEW))
    with watched_plans() as plans:
        assert len(worker.work()) == NEW
    with watched_plans() as whole:
        HandWorker().run_pass()

    assert_good(plans)
    assert [fault for plan in whole for fault in plan.faults()]  # else nothing was shown


def _take_an_id() -> None:
    """From here on the transaction keeps what others delete."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_current_xact_id()")
