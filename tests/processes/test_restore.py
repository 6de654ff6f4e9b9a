"""A backup by pg_dump has all that is needed, however it is put back."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection, transaction

import hipq_django as hipq
from hipq_django.models import Answer, Attempt, Batch, Job, JobType, Link, Queue
from tests.plugin import renamed
from tests.postgres import client_program
from tests.processes.conftest import Workers, nightly
from tests.running import run_due_jobs

psycopg = pytest.importorskip("psycopg")

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.postgres,
    pytest.mark.processes,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not client_program("pg_dump").exists(), reason="needs the wheel's pg_dump"),
]

MODELS = (Queue, JobType, Batch, Job, Link, Attempt, Answer)
TABLES = [model._meta.db_table for model in MODELS]


@pytest.fixture
def source(process_environment: dict[str, str]) -> str:
    """The address of this test's database, in which there are jobs of all kinds."""
    for number in range(3):
        hipq.enqueue("echo", number, job_key=f"echo-{number}")
    hipq.enqueue("boom", {})
    hipq.enqueue("ask", job_key="asked")
    run_due_jobs()
    hipq.enqueue("echo", "to do", job_key="waiting")
    hipq.complete("ask", "nobody", response="early")
    return process_environment["DATABASE_URL"]


@pytest.fixture
def target(source: str) -> Iterator[str]:
    """The address of an empty database beside it."""
    name = f"{connection.settings_dict['NAME']}_restored"  # tests run side by side
    with connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {name}")
        cursor.execute(f"CREATE DATABASE {name}")
    yield renamed(source, name)
    with connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE {name} WITH (FORCE)")


def dump(source: str, *options: str) -> bytes:
    command = [str(client_program("pg_dump")), *options, source]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout


def restore(target: str, script: bytes) -> None:
    """Execute a script, and stop at its first error."""
    command = [str(client_program("psql")), "--quiet", "--set=ON_ERROR_STOP=1", target]
    subprocess.run(command, check=True, input=script, stdout=subprocess.DEVNULL)


def restore_archive(target: str, archive: bytes) -> None:
    command = [str(client_program("pg_restore")), "--exit-on-error", f"--dbname={target}"]
    subprocess.run(command, check=True, input=archive)


def contents(url: str) -> dict[str, list[Any]]:
    with psycopg.connect(url) as session:
        rows = {t: session.execute(f"SELECT * FROM {t} ORDER BY id").fetchall() for t in TABLES}
    assert len(rows["hipq_job"]) == 6
    return rows


@pytest.mark.parametrize(
    "way", [nightly("all at once"), "an archive", nightly("schema, then data"), "our data only"]
)
def test_a_backup_is_restored_in_full_and_goes_on(
    source: str, target: str, workers: Workers, way: str
) -> None:
    if way == "all at once":
        restore(target, dump(source))
    elif way == "an archive":
        restore_archive(target, dump(source, "--format=custom"))
    else:
        restore(target, dump(source, "--schema-only"))
        ours = ["--table=hipq_*", "--table=django_migrations"]
        tables = ours if way == "our data only" else []
        restore(target, dump(source, "--data-only", *tables))

    assert contents(target) == contents(source)
    assert workers.run("--until-idle", DATABASE_URL=target) == 0
    with psycopg.connect(target) as session:
        sql = "SELECT outcome FROM hipq_job WHERE job_key = 'waiting'"
        assert session.execute(sql).fetchone() == ("succeeded",)
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            session.execute("DELETE FROM hipq_queue")
        session.rollback()
        with pytest.raises(psycopg.errors.CheckViolation):
            session.execute("UPDATE hipq_job SET attempt = attempt + 1 WHERE state = 'final'")


def test_the_parents_of_jobs_are_found_whatever_the_search_path() -> None:
    hipq.enqueue("echo")
    with connection.cursor() as cursor, transaction.atomic():
        cursor.execute("SET LOCAL search_path = pg_catalog")
        with pytest.raises(Exception, match="is still needed by jobs"), transaction.atomic():
            cursor.execute("DELETE FROM public.hipq_queue")
