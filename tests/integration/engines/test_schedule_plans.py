"""The look for due schedules costs the same however many are not due, and however many have run.

Each statement is explained in the moment before it runs, among 10,000 schedules that are not due,
their runs and final jobs of these, with statistics that are fresh, missing, or of tables
that looked quite different.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import Model
from pytest_django import DjangoDbBlocker

from hipq_django.conf.instances import get_instance
from hipq_django.database import clock
from hipq_django.database.transactions import READS_NO_TABLE
from hipq_django.models import Job, JobType, Queue, Schedule, ScheduleRun
from hipq_django.models.catalog import get_job_type
from hipq_django.schedules.firing import Firing
from tests.databases import forget_statistics
from tests.plans import assert_good, watched_plans

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]

SCHEDULES, DUE = 10_000, 20
SECOND = timedelta(seconds=1)
STATISTICS: dict[str, list[Any]] = {
    "sqlite": ["fresh", "missing"],
    "postgresql": [
        "fresh",
        "missing",
        "of due schedules",
        pytest.param("of empty tables", marks=pytest.mark.nightly),
    ],
}
TABLES = ("hipq_schedule", "hipq_schedulerun", "hipq_job")


@pytest.fixture(scope="module", params=STATISTICS[connection.vendor])
def backlog(
    request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: DjangoDbBlocker
) -> Iterator[None]:
    """The rows that nothing should cost, and statistics of some kind."""
    with django_db_blocker.unblock():
        try:
            _set_autovacuum(on=False)
            if request.param == "of empty tables":
                execute("ANALYZE")
            add_schedules()
            if request.param == "of due schedules":
                move_schedules(-1)
                execute("ANALYZE")
                move_schedules(+1)
                execute("VACUUM hipq_schedule")
            if request.param == "fresh":
                execute("ANALYZE")
            yield
        finally:
            _forget_everything()


def add_schedules() -> None:
    """Each has a run, and the final job of that."""
    job_type, later = get_job_type("default", "echo"), clock.now("default") + timedelta(days=1)
    pattern = Schedule.objects.create(
        name="0", job_type=job_type, cron="0 * * * *", next_time=later
    )
    ScheduleRun.objects.create(schedule=pattern, due_time=later, kind="fired")
    Job.objects.create(
        job_type=job_type, queue=job_type.queue, state="final", outcome="succeeded", attempt=1,
        schedule_id=pattern.pk, due_time=later,
    )  # fmt: skip
    numbers = (
        "WITH RECURSIVE numbers(id) AS "
        f"(SELECT 1 UNION ALL SELECT id + 1 FROM numbers WHERE id < {SCHEDULES})"
    )
    copy(Schedule, f"{numbers} INSERT", "numbers", name="CAST(other.id AS varchar)")
    others = f"(SELECT id FROM hipq_schedule WHERE id <> {pattern.pk})"
    for model in (ScheduleRun, Job):
        copy(model, "INSERT", others, schedule_id="other.id")


def copy(model: type[Model], insert: str, others: str, **changed: str) -> None:
    """Let the database copy the one row of a table for each of the others."""
    names = [
        field.get_attname() for field in model._meta.local_concrete_fields if field.name != "id"
    ]
    table = model._meta.db_table
    values = ", ".join(changed.get(name, f"pattern.{name}") for name in names)
    execute(
        f"{insert} INTO {table} ({', '.join(names)}) "
        f"SELECT {values} FROM {table} pattern CROSS JOIN {others} other"
    )


def move_schedules(days: int) -> None:
    Schedule.objects.update(next_time=clock.now("default") + timedelta(days=days))


def execute(sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


def _set_autovacuum(*, on: bool) -> None:
    if connection.vendor == "postgresql":
        for table in TABLES:
            execute(f"ALTER TABLE {table} SET (autovacuum_enabled = {on})")


def _forget_everything() -> None:
    if connection.vendor == "postgresql":
        execute(f"TRUNCATE {', '.join(TABLES)} CASCADE")
        forget_statistics(connection)
        for table in TABLES:
            execute(f"ALTER TABLE {table} RESET (autovacuum_enabled)")
    elif "sqlite_stat1" in connection.introspection.table_names():
        execute("DELETE FROM sqlite_stat1")
    for model in (ScheduleRun, Schedule, Job, JobType, Queue):
        model._default_manager.all()._raw_delete("default")


@pytest.fixture(autouse=True)
def _as_in_a_transaction_of_a_worker(db: None) -> None:
    """That of the test is around it."""
    if connection.vendor == "postgresql":
        execute(f"SELECT {READS_NO_TABLE}")


def test_a_look_when_nothing_is_due(backlog: None) -> None:
    """Each worker asks this once a second at least."""
    with watched_plans() as plans:
        assert Firing(get_instance()).run() == 0

    assert_good(plans)
    assert len(plans) == 1


@pytest.mark.parametrize("options", [{}, {"overlap": "replace"}, {"catch_up": "all"}])
def test_a_look_when_some_are_due(backlog: None, options: dict[str, Any]) -> None:
    now = clock.now("default")
    first = Schedule.objects.order_by("pk").values("pk")[:DUE]
    values = {"next_time": now - 30 * SECOND, "cron": "* * * * * *", **options}
    Schedule.objects.filter(pk__in=list(first.values_list("pk", flat=True))).update(**values)

    with watched_plans() as plans:
        assert Firing(get_instance()).run() == DUE

    assert_good(plans)
    assert Job.objects.live().values("schedule_id").distinct().count() == DUE
