"""The grants under "Rights of a role" are enough, also where PUBLIC has no rights."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection, transaction
from django.test import Client
from django.urls import reverse

import hipq_django as hipq
from hipq_django.models import Job
from tests.databases import make, on_server
from tests.declaring import Declare
from tests.docs.documents import OPERATIONS
from tests.hand_worker import HandWorker
from tests.plugin import renamed
from tests.postgres import for_role
from tests.processes.conftest import Workers

psycopg = pytest.importorskip("psycopg")

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.postgres,
    pytest.mark.django_db(transaction=True),
]

GRANTS = {
    role: "".join(line for line in block.splitlines(keepends=True) if f" TO {role};" in line)
    for block in re.findall(r"```sql\n(.*?)```", OPERATIONS.section("Rights of a role"), re.DOTALL)
    for role in set(re.findall(r" TO (\w+);", block))
}


LEFT = """
    SELECT proname FROM pg_proc WHERE proname ~ '^hipq_'
    UNION ALL SELECT typname FROM pg_type WHERE typname ~ '^_?hipq_'"""


@contextmanager
def _granted(role: str, url: str) -> Iterator[str]:
    """Make a role with the grants of the page in a database. Roles belong to the whole server."""
    name = f"{role}_of_{connection.settings_dict['NAME']}"
    on_server(f"CREATE ROLE {name} LOGIN")
    on_server(f"GRANT {name} TO {psycopg.conninfo.conninfo_to_dict(url)['user']}")
    with psycopg.connect(url, autocommit=True) as session:
        session.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")
        session.execute("REVOKE EXECUTE ON ALL ROUTINES IN SCHEMA public FROM PUBLIC")
        session.execute(GRANTS[role].replace(f" TO {role};", f" TO {name};"))
    try:
        yield name
    finally:
        with psycopg.connect(url, autocommit=True) as session:
            session.execute(f"DROP OWNED BY {name} CASCADE")
            session.execute("GRANT USAGE ON SCHEMA public TO PUBLIC")
            session.execute("GRANT EXECUTE ON ALL ROUTINES IN SCHEMA public TO PUBLIC")
        on_server(f"DROP ROLE {name}")


@pytest.fixture
def granted(process_environment: dict[str, str]) -> Iterator[Callable[[str], str]]:
    """Makes a role of the page in the test's database, which the connection of the test takes."""
    with ExitStack() as roles:
        roles.callback(connection.close)

        def make_role(role: str) -> str:
            name = roles.enter_context(_granted(role, process_environment["DATABASE_URL"]))
            with connection.cursor() as cursor:
                cursor.execute(f"SET ROLE {name}")
            return name

        yield make_role


def test_a_role_that_may_only_enqueue_does_so_in_every_way(
    granted: Callable[[str], str], declare: Declare, caplog: pytest.LogCaptureFixture
) -> None:
    unique = [declare.task(scope, unique=scope)(lambda: None) for scope in ("live", "waiting")]
    first = [hipq.enqueue("echo"), *(task.enqueue() for task in unique)]
    granted("web")

    hipq.enqueue("echo", job_key="k")
    with pytest.raises(hipq.DuplicateJobKeyError):
        hipq.enqueue("echo", job_key="k")
    hipq.enqueue_many([hipq.NewJob("echo") for _ in range(3)])
    with transaction.atomic():  # where a job that waits is locked
        assert [task.enqueue() for task in unique] == first[1:]
    hipq.enqueue("echo", after=first)
    hipq.chain(*[hipq.NewJob("echo") for _ in range(3)])
    with hipq.batch("all", then=hipq.NewJob("echo")) as batch:
        batch.enqueue(hipq.NewJob("echo"))
        batch.enqueue_many([hipq.NewJob("echo")])
    failed_after_commit = list(caplog.messages)
    connection.close()
    HandWorker().run_until_idle()

    assert failed_after_commit == []
    assert Job.objects.filter(outcome="succeeded").count() == 14
    assert Job.objects.filter(batch=batch).count() == 2


@pytest.mark.processes
def test_a_role_of_workers_runs_them_the_commands_and_the_admin(
    granted: Callable[[str], str], workers: Workers, admin_client: Client
) -> None:
    url = for_role(workers.environment["DATABASE_URL"], granted("worker"))

    hipq.enqueue("ask", job_key="k")
    hipq.enqueue_many([hipq.NewJob("echo"), hipq.NewJob("stumbling"), hipq.NewJob("boom")])
    assert workers.run("--until-idle", DATABASE_URL=url) == 0
    hipq.complete("ask", "k", response="yes")
    for command in (["hipq_status"], ["hipq_prune", "--days=0"], ["hipq_doctor"]):
        call_command(*command, stdout=StringIO())
    pages = [reverse(f"admin:hipq_{model}_changelist") for model in ("queue", "job", "worker")]

    assert {admin_client.get(page).status_code for page in pages} == {200}
    assert not Job.objects.exists()  # all were final


@pytest.fixture
def owned(process_environment: dict[str, str]) -> Iterator[str]:
    """The address of an empty database for a role that may migrate, and nothing more."""
    name = f"owned_{connection.settings_dict['NAME']}"
    url = renamed(process_environment["DATABASE_URL"], name)
    make(name)
    with _granted("owner", url) as owner:
        yield for_role(url, owner)
    on_server(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.processes
def test_an_owner_migrates_over_whatever_is_left(owned: str, workers: Workers) -> None:
    """Also after tables were dropped by hand."""

    def migrate(*where: str) -> int:
        return workers.start_command("migrate", "-v0", "hipq", *where, DATABASE_URL=owned).wait(60)

    def execute(statement: str) -> list[Any]:
        with psycopg.connect(owned) as session:
            cursor = session.execute(statement)
            return cursor.fetchall() if cursor.description else []

    assert migrate() == 0
    for (table,) in execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'"):
        execute(f"DROP TABLE {table} CASCADE")
    assert migrate() == 0
    assert migrate("zero") == 0
    assert execute(LEFT) == []
