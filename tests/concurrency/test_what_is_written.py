"""What is read, and written later, undoes nothing that was written in between."""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.models import Job, JobType, Queue
from hipq_django.models.catalog import get_job_type, get_queue, sync
from tests.concurrency.sessions import Session, wait_until_blocked
from tests.declaring import Declare

pytestmark = pytest.mark.django_db(transaction=True)


def bank(**options: Any) -> dict[str, Any]:
    return {"default": {"QUEUES": {"bank": options}}}


def handler(job: Any) -> None:
    """Do nothing."""


def in_transaction(session: Session, rows: Any, **values: Any) -> None:
    """Write the values in a transaction of the session that stays open."""
    session.begin()
    session(lambda: rows.update(**values))


@pytest.mark.postgres
@pytest.mark.parametrize(
    "written",
    [
        {"paused": True, "throttle_limit": Decimal(5)},
        {"throttler_state": {"RateLimit(3, 60)": [[1, 3]]}, "ranking": {"order": "time"}},
    ],
)
def test_a_new_setting_undoes_nothing_that_was_written_while_it_was_read(
    settings: Settings, session: Session, written: dict[str, Any]
) -> None:
    settings.HIPQ = bank(THROTTLE_LIMIT=3)
    sync("default")
    settings.HIPQ = bank(THROTTLE_LIMIT=10, RETENTION_DAYS=7)
    in_transaction(session, Queue.objects.filter(name="bank"), **written)
    starting = Session()
    synced = starting.start(partial(sync, "default"))
    wait_until_blocked()

    session.commit()
    synced.result(30)

    queue = Queue.objects.get(name="bank")
    assert {name: getattr(queue, name) for name in written} == written
    assert queue.retention_days == 7
    starting.close()


@pytest.mark.postgres
def test_a_new_declaration_undoes_no_edit_that_was_saved_while_it_was_read(
    declare: Declare, session: Session
) -> None:
    declare("charge", timeout=60)(handler)
    sync("default")
    declare("charge", timeout=90, priority=5)(handler)
    in_transaction(session, JobType.objects.filter(name="charge"), default_priority=1)
    starting = Session()
    synced = starting.start(partial(sync, "default"))
    wait_until_blocked()

    session.commit()
    synced.result(30)

    row = JobType.objects.get(name="charge")
    assert (row.default_timeout, row.default_priority) == (90, 1)
    starting.close()


@pytest.mark.postgres
def test_a_new_declaration_that_is_first_used_in_a_long_transaction_keeps_nobody_waiting(
    declare: Declare, session: Session
) -> None:
    declare("charge", priority=5)(handler)
    sync("default")
    declare("charge", priority=6)(handler)
    session.begin()
    session(partial(hipq.enqueue, "charge"))
    other = Session()

    second = other(partial(hipq.enqueue, "charge"))
    session.commit()

    assert [job.priority for job in Job.objects.order_by("pk")] == [6, 6]
    assert second.priority == 6
    other.close()


def test_an_enqueue_follows_a_new_declaration_and_leaves_the_row_to_workers(
    declare: Declare,
) -> None:
    declare("charge", priority=5)(handler)
    sync("default")
    declare("charge", priority=6, queue="bank", time_windows=["05:00-07:00"])(handler)

    one, two = hipq.enqueue("charge"), hipq.enqueue("charge")
    (three,) = hipq.enqueue_many([hipq.NewJob("charge")])

    assert {(job.priority, job.queue.name) for job in (one, two, three)} == {(6, "bank")}
    assert JobType.objects.get(name="charge").default_priority == 5
    sync("default")
    row = JobType.objects.get(name="charge")
    assert (row.default_priority, row.queue.name) == (6, "bank")
    assert get_job_type("default", "charge").declared == row.declared


def test_an_operators_edit_holds_for_processes_whose_code_is_ahead_of_the_row(
    declare: Declare,
) -> None:
    declare("charge", priority=5)(handler)
    sync("default")
    declare("charge", priority=5, timeout=60)(handler)
    hipq.enqueue("charge")
    JobType.objects.filter(name="charge").update(default_priority=1)

    job = hipq.enqueue("charge")

    assert (job.priority, job.timeout) == (1, 60)


@pytest.mark.postgres
def test_the_first_enqueues_of_a_type_without_a_row_wait_for_each_other_and_succeed(
    session: Session,
) -> None:
    get_queue("default", "default")
    session.begin()
    session(partial(hipq.enqueue, "nobody_declared"))
    other = Session()
    second = other.start(partial(hipq.enqueue, "nobody_declared"))
    wait_until_blocked()

    session.roll_back()

    job = second.result(30)
    assert Job.objects.get() == job
    assert JobType.objects.get() == job.job_type
    other.close()
