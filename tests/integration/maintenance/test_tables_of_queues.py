"""`hipq_tables`: queues get tables of their own, are emptied, and give them back."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.checks import run_checks
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, models, transaction
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.database.partitions import Partitions
from hipq_django.domain.states import State
from hipq_django.models import Answer, Attempt, Job, JobType, Link, Queue, Step
from hipq_django.monitoring.doctor import database
from tests.concurrency.sessions import Session, wait_until_blocked
from tests.declaring import Declare
from tests.factories import AnswerFactory, JobFactory, JobTypeFactory, QueueFactory
from tests.plugin import renamed
from tests.postgres import client_program
from tests.running import run_due_jobs

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif("HIPQ_TEST_TABLES" in os.environ, reason="there the tables are made"),
]

OWN = {"OWN_TABLE": True}


@pytest.fixture(autouse=True)
def _plain_afterwards(settings: Settings) -> Iterator[None]:
    settings.HIPQ = {"default": {"QUEUES": {"bank": OWN}}}
    yield
    said("--back", "--apply")


def said(*arguments: str) -> list[str]:
    out = StringIO()
    call_command("hipq_tables", *arguments, stdout=out)
    return out.getvalue().splitlines()


def refused(*arguments: str) -> str:
    with pytest.raises(CommandError) as raised:
        said(*arguments)
    return str(raised.value)


def job_of(queue: str, **values: Any) -> Job:
    row, _ = Queue.objects.get_or_create(name=queue, defaults={"paused": True})
    return JobFactory.create(queue=row, job_type=JobTypeFactory.create(queue=row), **values)


def rows_in(table: str) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT id FROM {table} ORDER BY id")
        return [pk for (pk,) in cursor.fetchall()]


def schema() -> list[str]:
    url = renamed(os.environ["DATABASE_URL"], str(connection.settings_dict["NAME"]))
    command = [str(client_program("pg_dump")), "--schema-only", url]
    dumped = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [line for line in dumped.splitlines() if not line.startswith(("\\restrict", "\\unres"))]


def test_a_queue_gets_its_table_and_its_jobs_go_there() -> None:
    own, others = [job_of("bank"), job_of("bank")], [job_of("cash")]
    lines = [
        "hipq_job becomes a table of tables; its 3 rows stay.",
        "bank: table default_bank; 2 rows move.",
    ]

    assert said() == lines
    assert not Partitions("default").is_partitioned
    assert said("--apply") == lines

    own.append(job_of("bank"))
    assert rows_in("default_bank") == [job.pk for job in own]
    assert rows_in("hipq_job_rest") == [job.pk for job in others]
    assert said() == said("--apply") == ["nothing to do"]


def test_a_second_table_is_added_and_w063_says_which_is_missing(settings: Settings) -> None:
    said("--apply")
    settings.HIPQ = {"default": {"QUEUES": dict.fromkeys(("bank", "cash"), OWN)}}

    found = [(one.id, one.msg) for one in run_checks(databases=["default"])]
    assert found == [("hipq.W063", "queue 'cash' has OWN_TABLE, but no table yet.")]

    assert said("--apply") == ["cash: table default_cash; 0 rows move."]
    assert [*run_checks(databases=["default"])] == []


@pytest.mark.skipif(not client_program("pg_dump").exists(), reason="needs the wheel's pg_dump")
def test_back_restores_the_schema_as_migrated_and_the_rows() -> None:
    jobs = [job_of("bank"), job_of("cash")]
    before = schema()
    said("--apply")
    jobs.append(job_of("bank"))

    assert said("--back") == ["hipq_job becomes one table again; 2 rows move."]
    assert said("--back", "--apply") == ["hipq_job becomes one table again; 2 rows move."]

    assert schema() == before
    jobs.append(job_of("cash"))
    assert rows_in("hipq_job") == sorted({job.pk for job in jobs})


def test_what_the_database_keeps_of_jobs_it_keeps_in_tables_too() -> None:
    said("--apply")
    job, cash = job_of("bank"), QueueFactory.create(name="cash")
    answer = AnswerFactory.create(job=job, status="accepted")

    with pytest.raises(IntegrityError, match="queue and type stay"):
        Job.objects.filter(pk=job.pk).update(queue=cash)
    with pytest.raises(IntegrityError, match="is still named by answers"):
        Job.objects.filter(pk=job.pk)._raw_delete("default")
    with pytest.raises(IntegrityError, match="names job 0, which does not exist"):
        Answer.objects.filter(pk=answer.pk).update(job=0)
    with pytest.raises(IntegrityError, match="no queue or no type"):
        job_of("bank", job_type_id=0)


def test_jobs_run_and_are_answered_in_tables(declare: Declare, settings: Settings) -> None:
    settings.HIPQ = {
        "default": {"QUEUES": {"bank": {"OWN_TABLE": True, "THROTTLE_LIMIT": 1}}, "STRICT": False}
    }
    said("--apply")
    declare("ask_bank", queue="bank")(lambda job: hipq.WAIT)
    job = hipq.enqueue("ask_bank", job_key="order-1")
    with pytest.raises(hipq.DuplicateJobKeyError):
        hipq.enqueue("ask_bank", job_key="order-1")

    run_due_jobs()
    hipq.complete("ask_bank", "order-1", response={"paid": True})

    job.refresh_from_db()
    assert (job.state, job.result, rows_in("default_bank")) == ("final", {"paid": True}, [job.pk])


def test_who_uses_jobs_is_not_disturbed_and_named() -> None:
    with closing(Session()) as other:
        other.begin()
        other(Job.objects.count)

        assert refused("--apply") == "hipq_job is in use: try again, or stop the workers."

    assert not Partitions("default").is_partitioned


def test_an_enqueue_waits_meanwhile_and_goes_on() -> None:
    with closing(Session()) as other:
        first = other(lambda: hipq.enqueue("noop"))  # so its session has a plan for the plain table
        with transaction.atomic():
            Partitions("default").lock()
            second = other.start(lambda: hipq.enqueue("noop"))
            wait_until_blocked()
            Partitions("default").divide()
        third = other(lambda: hipq.enqueue("noop"))

    assert rows_in("hipq_job_rest") == [first.pk, second.result().pk, third.pk]


def test_a_name_that_is_taken_is_refused() -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE default_bank ()")
    try:
        assert (
            refused()
            == refused("--apply")
            == ("table 'default_bank' exists already; give another name by TABLE_NAMING_STRATEGY.")
        )
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE default_bank")
    assert not Partitions("default").is_partitioned


def test_a_foreign_key_of_the_project_is_refused() -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE shop_order (job_id bigint REFERENCES hipq_job)")
    try:
        assert refused("--apply") == (
            "shop_order.job_id references hipq_job, and nothing can reference a table of tables; "
            "give the field db_constraint=False."
        )
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE shop_order")


def test_a_later_migration_works_on_the_table_of_tables() -> None:
    said("--apply")
    job = job_of("bank")
    field = models.IntegerField(default=7)
    field.set_attributes_from_name("later")
    with connection.schema_editor() as editor:
        editor.add_field(Job, field)
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT id, later FROM default_bank")
            assert cursor.fetchall() == [(job.pk, 7)]
        said("--back", "--apply")
    finally:
        with connection.schema_editor() as editor:
            editor.remove_field(Job, field)


def test_the_doctor_looks_at_the_tables_of_queues() -> None:
    said("--apply")
    parts = database._with_parts("default", "hipq_job")
    assert {*parts} == {"hipq_job", "hipq_job_rest", "default_bank"}
    assert int(database._fetch("default", database._WAL, [parts])[0]) > 0
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE default_bank SET (autovacuum_enabled = off)")

    found = database.findings("default", timedelta(0))

    assert "table default_bank" in [one.where for one in found if one.code == "autovacuum_off"]


# --drop-ended


def ended(queue: str) -> Job:
    job = job_of(queue, state=State.FINAL, outcome="succeeded")
    Attempt.objects.create(job=job, attempt=1, error="NONE")
    AnswerFactory.create(job=job, status="accepted")
    Step.objects.create(job=job, name="one", result=1, attempt=1)
    Link.objects.create(job=job, needs_job=job)
    return job


def test_ended_jobs_of_a_paused_queue_are_dropped_with_what_belongs_to_them() -> None:
    said("--apply")
    gone, stays = ended("bank"), ended("cash")
    Queue.objects.update(paused=True)

    assert said("--drop-ended", "bank") == ["bank: 1 ended jobs to drop."]
    assert Job.objects.filter(pk=gone.pk).exists()
    assert said("--drop-ended", "bank", "--apply") == ["bank: 1 ended jobs dropped."]

    assert [*Job.objects.values_list("pk", flat=True)] == [stays.pk]
    for child in (Attempt, Answer, Step, Link):
        assert [*child.objects.values_list("job", flat=True)] == [stays.pk]


def test_what_is_in_use_is_not_dropped() -> None:
    assert refused("--drop-ended", "bank") == "bank has no table of its own."
    said("--apply")
    needed = ended("bank")
    Queue.objects.update(paused=False)
    assert refused("--drop-ended", "bank") == "bank is not paused."

    Queue.objects.update(paused=True)
    live = job_of("bank")
    assert refused("--drop-ended", "bank") == "bank has 1 live jobs."

    live.delete()
    follower = job_of("cash")
    Link.objects.create(job=follower, needs_job=needed)
    assert refused("--drop-ended", "bank", "--apply") == f"job {follower.pk} needs jobs of bank."


# Keys


@pytest.mark.parametrize("options", [{"job_key": "order-42"}, {"unique": "kept"}])
def test_a_job_with_a_key_stays_in_the_queue_of_its_type(
    declare: Declare, options: dict[str, str]
) -> None:
    key = options.pop("job_key", None)
    declare("charge_card", queue="bank", **options)(lambda job: None)
    message = (
        "enqueue 'charge_card': a job with a key stays in its type's queue 'bank', because queues "
        "have tables of their own."
    )

    with pytest.raises(hipq.InvalidJobError) as raised:
        hipq.enqueue("charge_card", {}, job_key=key, queue="cash")
    assert str(raised.value) == message
    with pytest.raises(hipq.InvalidJobError):
        hipq.enqueue_many([hipq.NewJob("charge_card", {}, job_key=key, queue="cash")])
    hipq.enqueue("charge_card", {}, job_key=key, queue="bank")


def test_a_job_elsewhere_gets_no_key_later(declare: Declare) -> None:
    def handler(job: Job) -> None:
        job.set_key("order-42")

    declare("charge_card", queue="bank", retry=hipq.Never())(handler)
    job = hipq.enqueue("charge_card", queue="cash")

    run_due_jobs()

    job.refresh_from_db()
    assert "set_key 'charge_card': a job with a key stays in its type's queue 'bank'" in str(
        job.error
    )
    assert JobType.objects.get().queue.name == "bank"


def test_other_instances_on_the_same_database_keep_their_tables() -> None:
    with transaction.atomic():
        Partitions("default").lock()
        Partitions("default").divide()

    assert Partitions("default").own_tables == {}
    assert said("--apply") == ["bank: table default_bank; 0 rows move."]
