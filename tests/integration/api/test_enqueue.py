"""Creating jobs: defaults, values of their own, unknown types, transactions."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.db import connection, transaction
from pytest_django import DjangoAssertNumQueries

import hipq_django as hipq
from hipq_django.database import clock
from hipq_django.engines import functions, statements
from hipq_django.migrations._scripts import script
from hipq_django.models import Job, JobType, Queue
from tests.declaring import Declare
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db

FIELDS_OF_ITS_OWN: dict[str, Any] = {
    "timeout": 60,
    "priority": 5,
    "throttle_factor": Decimal("0.5"),
    "time_windows": ["00:00-24:00"],
}


def charge(job: Job) -> Any:
    return job.job_data


@pytest.fixture
def charge_card(declare: Declare) -> Any:
    return declare(
        "charge_card", queue="bank", timeout=3_600, priority=10, throttle_factor=2,
        time_windows=["05:00-07:00"],
    )(charge)  # fmt: skip


def test_a_job_has_the_defaults_of_the_design() -> None:
    """T2."""
    before = clock.now("default")
    job = hipq.enqueue("echo")
    job.refresh_from_db()

    assert (job.queue.name, job.job_type.name) == ("default", "echo")
    assert (job.job_data, job.job_key) == ({}, "NONE")
    assert (job.state, job.outcome, job.error, job.result) == ("initial", "NONE", "NONE", None)
    assert (job.timeout, job.priority, job.throttle_factor) == (86_400, 100, 1)
    assert (job.time_windows, job.attempt, job.worker, job.origin) == ([], 0, None, None)
    assert before <= job.scheduled_run_time == job.create_time <= clock.now("default")


def test_the_returned_job_is_the_stored_one(charge_card: Any) -> None:
    job = charge_card.enqueue({"order": (42,)}, job_key="order-42")

    stored = Job.objects.get(pk=job.pk)
    names = [field.attname for field in Job._meta.concrete_fields]
    assert {n: getattr(job, n) for n in names} == {n: getattr(stored, n) for n in names}
    assert stored.job_data == {"order": [42]}
    assert (stored.queue.name, stored.throttle_factor) == ("bank", 2)  # of its type, as below
    assert stored.time_windows == ["05:00-07:00"]


def test_values_of_its_own_win(charge_card: Any) -> None:
    """T8."""
    job = charge_card.enqueue(queue="fast", **FIELDS_OF_ITS_OWN)
    job.refresh_from_db()

    assert job.queue.name == "fast"
    assert {name: getattr(job, name) for name in FIELDS_OF_ITS_OWN} == FIELDS_OF_ITS_OWN


def test_a_later_change_of_the_type_leaves_queued_jobs_alone(charge_card: Any) -> None:
    """T8: values are copied at creation."""
    job = charge_card.enqueue()
    JobType.objects.filter(name="charge_card").update(default_priority=1, default_timeout=5)
    fresh = charge_card.enqueue()
    job.refresh_from_db()

    assert (job.priority, job.timeout) == (10, 3_600)
    assert (fresh.priority, fresh.timeout) == (1, 5)


@pytest.mark.parametrize("options", [{}, {"job_key": "k", "on_conflict": "replace"}])
def test_a_change_of_the_type_inside_a_transaction_is_seen_and_forgotten_with_it(
    options: dict[str, Any],
) -> None:
    """Also by a process that knows the type already, and with the transaction still usable."""
    hipq.enqueue("echo", priority=1)
    with transaction.atomic():
        JobType.objects.filter(name="echo").update(default_priority=5)
        inside = hipq.enqueue("echo", **options).priority
        transaction.set_rollback(True)

    assert (inside, hipq.enqueue("echo", **options).priority) == (5, 100)


def test_a_change_of_the_queue_is_seen_by_the_next_enqueue() -> None:
    before = hipq.enqueue("echo")
    Queue.objects.filter(name="default").update(order="priority")
    after = hipq.enqueue("echo")

    queue = Queue.objects.get(name="default")
    assert before.rank != after.rank
    assert after.rank == queue.ordering.rank(after.scheduled_run_time, after.priority)


# Types that nobody declared


def test_a_job_of_an_unknown_type_is_left_alone() -> None:
    """T7: it waits; no worker fails it."""
    job = hipq.enqueue("nobody_knows")
    other = hipq.enqueue("echo")

    assert run_due_jobs() == 1
    job.refresh_from_db()
    other.refresh_from_db()
    assert (job.state, other.outcome) == ("initial", "succeeded")


# Transactions


@pytest.mark.parametrize("key", [None, "order-42"])
def test_a_job_of_a_rolled_back_transaction_never_was(key: str | None) -> None:
    """T1."""
    with transaction.atomic():
        hipq.enqueue("echo", job_key=key)
        transaction.set_rollback(True)

    assert Job.objects.count() == 0
    assert run_due_jobs() == 0


def test_an_enqueue_is_one_insert(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    hipq.enqueue("echo")
    hipq.enqueue("echo")

    # PostgreSQL compares the job type and its queue with those known; else they are read anew.
    with django_assert_num_queries(1 if connection.vendor == "postgresql" else 2):
        hipq.enqueue("echo")


@pytest.mark.conformance
@pytest.mark.postgres
def test_tables_made_without_migrations_take_jobs_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in tests that skip migrations."""
    monkeypatch.setattr(functions, "_found", {})
    with connection.schema_editor() as schema_editor:
        script("0001_drop_functions")(None, schema_editor)
    hipq.enqueue("nobody_knows")
    JobType.objects.filter(name="nobody_knows").update(default_priority=5)

    assert [hipq.enqueue("nobody_knows").priority for _ in range(2)] == [5, 5]
    hipq.enqueue("echo")
    assert run_due_jobs() == 1


@pytest.mark.conformance
@pytest.mark.postgres
def test_functions_of_another_version_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(functions, "_found", {})
    name = statements.FREE.function
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER FUNCTION {name} RENAME TO hipq_free_00000000")

    with pytest.raises(
        hipq.ConfigurationError, match=rf"lacks function {name}.*manage.py migrate --"
    ):
        functions.has_functions("default")
