"""What the database itself refuses, whoever writes to it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import IntegrityError, connection, transaction
from django.db.migrations.executor import MigrationExecutor
from django.db.models import CheckConstraint, Func, Model

from hipq_django.domain.states import MOVES, VALID_COMBINATIONS, Outcome, Phase, State
from hipq_django.engines import engine_for
from hipq_django.models import Answer, Attempt, Job, JobType, Queue
from tests.factories import (
    AnswerFactory,
    AttemptFactory,
    JobFactory,
    JobTypeFactory,
    QueueFactory,
    WorkerFactory,
)

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]

VALUES_OF: dict[State, dict[str, Any]] = {
    State.INITIAL: {"state": "initial", "error": "NONE"},
    State.RUNNING: {"state": "running", "error": "NONE"},
    State.ERROR: {"state": "error", "error": "boom"},
    State.RETRY: {"state": "retry", "error": "boom"},
    State.FINAL: {"state": "final", "error": "boom", "outcome": "failed"},
}


def update(job: Job, **values: Any) -> int:
    """Write to the row by plain SQL UPDATE, past all code."""
    return Job.objects.filter(pk=job.pk).update(**values)


def assert_refused(job: Job, **values: Any) -> None:
    before = Job.objects.filter(pk=job.pk).values().get()
    with pytest.raises(IntegrityError), transaction.atomic():
        update(job, **values)
    assert Job.objects.filter(pk=job.pk).values().get() == before


# Moves


def test_the_moves_of_the_state_machine_are_taken_and_no_others() -> None:
    """T3."""
    taken = []
    for old, new in itertools.permutations(State, 2):
        # Nothing else about the row may be the reason: attempt 0 fits every state.
        job = JobFactory.create(state=old, attempt=0)
        with suppress(IntegrityError), transaction.atomic():
            assert update(job, **{"outcome": "NONE"} | VALUES_OF[new]) == 1
            taken.append((old, new))

    assert taken == [move for move in itertools.permutations(State, 2) if move[1] in MOVES[move[0]]]


def test_a_final_row_never_changes() -> None:
    """T3: not even to what it is already."""
    job = JobFactory.create(state=State.FINAL)
    changes: list[dict[str, Any]] = [
        {"priority": 5},
        {"result": "other"},
        {"error": "other", "outcome": "failed"},
        {"outcome": "cancelled"},
        {"job_key": "other"},
        {"attempt": 2},
        {"state": "final"},
        {"origin": None},
    ]
    for values in changes:
        assert_refused(job, **values)


def test_a_final_row_may_be_deleted() -> None:
    job = JobFactory.create(state=State.FINAL)
    AttemptFactory.create(job=job)

    job.delete()

    assert (Job.objects.count(), Attempt.objects.count()) == (0, 0)


@pytest.mark.parametrize("state", ["running", "error", "retry"])
def test_the_attempt_only_ever_grows(state: str) -> None:
    job = JobFactory.create(state=state, attempt=3)

    assert_refused(job, attempt=2)
    assert update(job, attempt=4) == 1


def test_the_time_of_creation_never_changes() -> None:
    job = JobFactory.create()

    assert_refused(job, create_time=job.create_time - timedelta(days=1))


def test_one_forbidden_row_ends_an_update_of_many() -> None:
    jobs = [JobFactory.create(state=state) for state in (State.RUNNING, State.FINAL)]

    said = pytest.raises(IntegrityError, match="hipq: a final job never changes")
    with said, transaction.atomic():
        Job.objects.filter(pk__in=[job.pk for job in jobs]).update(priority=5)

    assert set(Job.objects.values_list("priority", flat=True)) == {100}


# Values


BROKEN: list[tuple[str, dict[str, Any]]] = [
    ("initial", {"error": {"code": 1}}),
    ("initial", {"attempt": 1}),
    ("final", {"outcome": "lost", "error": "boom"}),
    ("done", {}),
    ("initial", {"timeout": 0}),
    ("initial", {"timeout": -1}),
    ("initial", {"timeout": 1e12}),
    ("initial", {"throttle_factor": -1}),
    ("initial", {"priority": 1_000_001}),
    ("initial", {"priority": -1_000_001}),
    ("initial", {"job_key": ""}),
    ("running", {"progress": -1}),
    ("running", {"progress": 100.5}),
    ("running", {"extended_seconds": -1}),
]


def test_a_row_that_breaks_an_invariant_cannot_be_written() -> None:
    """T4."""
    job_type, written = JobTypeFactory.create(), []
    for state, values in BROKEN:
        with suppress(IntegrityError), transaction.atomic():
            JobFactory.create(job_type=job_type, state=state, **values)
            written.append((state, values))

    assert written == []


def test_a_row_has_one_of_the_shapes_and_no_other() -> None:
    """T4."""
    worker, job_type, taken = WorkerFactory.create(), JobTypeFactory.create(), []
    errors, workers = {"": "NONE", "/error": "boom"}, {"": None, "/worker": worker}
    for state, outcome, work, error, hands in itertools.product(
        State.values, Outcome.values, Phase.values, errors, workers
    ):
        values = {"state": state, "outcome": outcome, "phase": work, "attempt": 0}
        with suppress(IntegrityError), transaction.atomic():
            JobFactory.create(
                job_type=job_type, **values, error=errors[error], worker=workers[hands]
            )
            taken.append(f"{state}/{outcome}/{work}{error}{hands}")

    assert sorted(taken) == sorted(VALID_COMBINATIONS)


@pytest.mark.parametrize(
    ("model", "values"),
    [
        (Queue, {"throttle_limit": 1_000_001}),
        (Queue, {"order": "random"}),
        (Queue, {"granularity_seconds": 0}),
        (Queue, {"ageing_seconds": -1}),
        (Queue, {"retention_days": -1}),
        (Queue, {"retention_days_succeeded": 36_501}),
        (JobType, {"default_timeout": 0}),
        (JobType, {"default_throttle_factor": -1}),
        (JobType, {"default_priority": 1_000_001}),
    ],
)
def test_an_operator_cannot_write_what_makes_no_sense(model: Any, values: dict[str, Any]) -> None:
    row = QueueFactory.create() if model is Queue else JobTypeFactory.create()

    with pytest.raises(IntegrityError), transaction.atomic():
        model.objects.filter(pk=row.pk).update(**values)


def test_a_queue_and_a_type_are_unique_by_name_in_their_instance() -> None:
    """T33."""
    queue, job_type = QueueFactory.create(), JobTypeFactory.create()

    makers: list[tuple[Any, str]] = [(QueueFactory, queue.name), (JobTypeFactory, job_type.name)]
    for make, name in makers:
        make.create(name=name, instance="other")
        with pytest.raises(IntegrityError), transaction.atomic():
            make.create(name=name)


def test_one_response_is_accepted_per_job() -> None:
    job = JobFactory.create(state="running")
    AnswerFactory.create(job=job, status="accepted")

    with pytest.raises(IntegrityError), transaction.atomic():
        AnswerFactory.create(job=job, status="accepted")


def test_a_message_is_stored_once() -> None:
    AnswerFactory.create(message_id="m-1")

    with pytest.raises(IntegrityError), transaction.atomic():
        AnswerFactory.create(message_id="m-1")


def test_an_answer_that_was_matched_names_its_job() -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        AnswerFactory.create(status=Answer.Status.LATE)


# What migrations install


def test_migrations_have_frozen_the_checks_of_the_models() -> None:
    """Else a database that migrates today has another check than one that did so before."""
    frozen = MigrationExecutor(connection).loader.project_state().apps.get_model("hipq", "Job")

    assert checks_of(frozen) == checks_of(Job)
    assert "hipq_django.models" not in {type(part).__module__ for part in parts_of(frozen)}


def checks_of(model: type[Model]) -> dict[str, str]:
    """Return the SQL of a model's checks, by their names."""
    editor = connection.schema_editor()
    checks = [one for one in model._meta.constraints if isinstance(one, CheckConstraint)]
    return {check.name: str(check.constraint_sql(model, editor)) for check in checks}


def parts_of(model: type[Model]) -> list[Any]:
    """Return the conditions of its checks that Django's migrations cannot write themselves."""
    checks = [one for one in model._meta.constraints if isinstance(one, CheckConstraint)]
    parts = [part for check in checks for part in getattr(check.condition, "children", [])]
    return [part for part in parts if isinstance(part, Func)]


@pytest.mark.postgres
def test_the_job_table_is_vacuumed_early_and_has_room_for_updates() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT reloptions FROM pg_class "
            "WHERE oid = COALESCE(to_regclass('hipq_job_rest'), 'hipq_job'::regclass)"
        )
        (options,) = cursor.fetchone()

    assert set(options) == {
        "fillfactor=85",
        "autovacuum_vacuum_scale_factor=0.02",
        "autovacuum_vacuum_threshold=500",
        "autovacuum_vacuum_cost_limit=2000",
        "autovacuum_vacuum_cost_delay=1",
        "autovacuum_vacuum_insert_scale_factor=0.02",
        "autovacuum_analyze_scale_factor=0.02",
    }


@pytest.mark.parametrize(
    "values",
    [
        {"kind": "malformed", "status": "unmatched"},
        {"kind": "malformed", "status": "early", "problem": "no key"},
        {"kind": "response", "status": "unmatched", "problem": "no key"},
        {"kind": "gossip", "status": "unmatched"},
    ],
)
def test_a_malformed_message_has_its_problem_and_matches_nothing(values: dict[str, Any]) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        AnswerFactory.create(**values)


# A job has its queue and its type


@contextmanager
def checked_transaction() -> Iterator[None]:
    """A transaction in which deferred foreign keys are checked, where there are any."""
    with transaction.atomic():
        yield
        connection.check_constraints()


def other_rows() -> dict[str, int]:
    return {"queue_id": QueueFactory.create().pk, "job_type_id": JobTypeFactory.create().pk}


@pytest.mark.parametrize("column", ["queue_id", "job_type_id"])
def test_a_job_stays_in_its_queue_and_keeps_its_type(column: str) -> None:
    job = JobFactory.create()

    with pytest.raises(IntegrityError, match="queue and type stay"), transaction.atomic():
        Job.objects.filter(pk=job.pk).update(**{column: other_rows()[column]})


@pytest.mark.parametrize("column", ["queue_id", "job_type_id"])
def test_a_job_without_queue_or_type_is_refused(column: str) -> None:
    job = JobFactory.build(queue=QueueFactory.create(), job_type=JobTypeFactory.create())
    setattr(job, column, 999_999)

    with pytest.raises(IntegrityError), checked_transaction():
        engine_for("default").insert([job], 1, by_key=True)


@pytest.mark.postgres
@pytest.mark.skipif("HIPQ_TEST_TABLES" in os.environ, reason="about the plain table")
def test_no_job_costs_a_look_at_the_rows_that_it_names() -> None:
    """Triggers do it once for all rows of a statement, and not at all where nothing changed."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT tgname FROM pg_trigger JOIN pg_constraint c ON c.oid = tgconstraint "
            "WHERE tgrelid = 'hipq_job'::regclass AND c.conrelid = tgrelid"
        )
        own = cursor.fetchall()
        cursor.execute(
            "SELECT conrelid::regclass::text FROM pg_constraint "
            "WHERE confrelid = 'hipq_job'::regclass AND starts_with(conname, 'hipq_')"
        )
        children = {name for (name,) in cursor.fetchall()}

    assert own == []
    assert children == {"hipq_answer"}


@pytest.mark.parametrize("model", [Queue, JobType])
def test_a_queue_or_type_that_has_jobs_cannot_be_deleted(model: Any) -> None:
    JobFactory.create()

    with pytest.raises(IntegrityError), checked_transaction():
        model.objects.all()._raw_delete("default")


# Fixtures


def loaded(tmp_path: Path, rows: str) -> list[Any]:
    """Load a fixture with these rows; return the jobs that are there then."""
    fixture = tmp_path / "jobs.json"
    fixture.write_text(rows)
    call_command("loaddata", str(fixture), verbosity=0)
    return _jobs()


def _jobs() -> list[Any]:
    return list(Job.objects.order_by("pk").values_list("pk", "state", "queue", "job_type", "error"))


def dumped() -> str:
    """All rows of ours, as `dumpdata` writes them; the tables are empty afterwards."""
    out = StringIO()
    call_command("dumpdata", "hipq", stdout=out)
    Job.objects.all().delete()
    JobType.objects.all().delete()
    Queue.objects.all().delete()
    return out.getvalue()


def test_what_dumpdata_writes_is_loaded(tmp_path: Path) -> None:
    for state in ("initial", "running", "final"):
        JobFactory.create(state=state)
    before = _jobs()

    assert loaded(tmp_path, dumped()) == before
