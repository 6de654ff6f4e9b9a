"""Transactions that the caller manages without Django's `atomic`: nothing is written in them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from django.db import connection, connections, transaction

import hipq_django as hipq
from hipq_django.database.transactions import write_transaction
from hipq_django.exceptions import ConfigurationError
from hipq_django.models import Answer, Job
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def final() -> Job:
    job = hipq.enqueue("echo", "done")
    run_due_jobs("default")
    job.refresh_from_db()
    return job


@pytest.fixture
def waiting(final: Job) -> Job:
    return hipq.enqueue("ask", job_key="waiting")


@pytest.fixture
def manual(waiting: Job, final: Job) -> Iterator[None]:
    """The connection of the test, its autocommit off."""
    transaction.set_autocommit(False)
    yield
    transaction.rollback()
    transaction.set_autocommit(True)


VERBS: dict[str, Callable[[Job, Job], Any]] = {
    "enqueue": lambda waiting, final: hipq.enqueue("ask"),
    "enqueue with the key of another": lambda waiting, final: hipq.enqueue(
        "ask", job_key="waiting", on_conflict="return"
    ),
    "enqueue_many": lambda waiting, final: hipq.enqueue_many([hipq.NewJob("ask")]),
    "cancel": lambda waiting, final: hipq.cancel(waiting),
    "run_now": lambda waiting, final: hipq.run_now(waiting),
    "requeue": lambda waiting, final: hipq.requeue(final),
    "complete": lambda waiting, final: hipq.complete("ask", "waiting", response=1),
    "fail": lambda waiting, final: hipq.fail("ask", "waiting", error="no"),
}


@pytest.mark.usefixtures("manual")
@pytest.mark.parametrize("verb", list(VERBS))
def test_without_autocommit_a_verb_is_refused_before_it_writes(
    waiting: Job, final: Job, verb: str
) -> None:
    before = list(Job.objects.order_by("pk").values())

    with pytest.raises(ConfigurationError, match=r"use transaction\.atomic\(\)"):
        VERBS[verb](waiting, final)

    transaction.commit()
    assert list(Job.objects.order_by("pk").values()) == before
    assert not Answer.objects.exists()


@pytest.mark.usefixtures("manual")
def test_inside_atomic_the_verbs_work_without_autocommit_too(waiting: Job, final: Job) -> None:
    with transaction.atomic():
        for verb in ("enqueue", "run_now", "requeue", "complete"):
            VERBS[verb](waiting, final)

    transaction.commit()
    assert Job.objects.count() == 4


@pytest.mark.parametrize("autocommits", [True, False])
@pytest.mark.parametrize("mode", ["IMMEDIATE", "EXCLUSIVE", "DEFERRED", None])
def test_sqlites_write_lock_is_taken_before_rows_are_read(
    monkeypatch: pytest.MonkeyPatch, mode: str | None, *, autocommits: bool
) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("is about SQLite")
    connection.ensure_connection()
    monkeypatch.setattr(connections["default"], "transaction_mode", mode)
    transaction.set_autocommit(autocommits)
    try:
        with transaction.atomic(), write_transaction("default"):
            assert _others_cannot_write()
    finally:
        transaction.set_autocommit(True)
    assert not _others_cannot_write()


def _others_cannot_write() -> bool:
    with closing(sqlite3.connect(connection.settings_dict["NAME"], timeout=0)) as other:
        try:
            other.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
    return False
