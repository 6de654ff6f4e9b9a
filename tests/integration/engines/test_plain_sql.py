"""ENGINE "orm": what PostgreSQL's own log says was sent, from `migrate` to `hipq_prune`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.conftest import ROOT
from tests.postgres import PostgresServer, temporary_server

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.postgres,
    pytest.mark.processes,
    pytest.mark.skipif(os.environ.get("HIPQ_TEST_ENGINE") != "orm", reason="is about ENGINE 'orm'"),
]

ENQUEUE = """
import hipq_django as hipq
from hipq_django import flow

hipq.enqueue("quick", {"number": 0})
hipq.enqueue_many([hipq.NewJob("quick", {"number": n}) for n in range(20)])
hipq.enqueue_many([hipq.NewJob("quick", {"number": n}, job_key=f"k-{n}") for n in range(20)])
hipq.enqueue_many(
    [hipq.NewJob("quick", {"number": n}, job_key=f"k-{n}") for n in range(21)],
    on_conflict="return",
)
hipq.enqueue("stumbling")
hipq.enqueue("asking", {"notes": "/dev/null"}, job_key="a")
hipq.enqueue("asking", {"notes": "/dev/null"}, job_key="b")
flow.start("pass_on").inputs["x"].write_many(range(20))
"""

ANSWER = """
import hipq_django as hipq
from hipq_django.models import Job

of_us = Job.objects.filter(job_type__name__in=["quick", "stumbling", "asking"])
print(*(of_us.filter(**x).count() for x in ({"outcome": "succeeded"}, {"state": "running"})))
hipq.receive_many([hipq.NewAnswer("asking", key, response=1) for key in "ab"])
"""

PRUNED = "from hipq_django.models import Job; print(Job.objects.final().count())"

FAST = re.compile(r"\bxmin\b|\bCOPY\b|\b(LISTEN|NOTIFY|pg_notify)\b")
OURS = re.compile(r"hipq_\w+_[0-9a-f]{8}\b(?= *\()")


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """A server that logs what it is sent."""
    with temporary_server(log_statement="all") as server:
        yield server


def manage(server: PostgresServer, *command: str) -> str:
    """Run a command of a project whose databases both are that of the server."""
    environment = os.environ | {
        "DATABASE_URL": server.url("postgres"),
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "HIPQ_TEST_QUEUES": '{"asking": {"THROTTLE_LIMIT": 5}}',
        "OTHER_DATABASE_URL": server.url("postgres"),
        "PYTHONPATH": str(ROOT),
    }
    arguments = [sys.executable, "-m", "django", *command]
    done = subprocess.run(arguments, check=True, env=environment, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


def test_nothing_is_sent_that_only_postgresql_understands(server: PostgresServer) -> None:
    log = server.directory / "server.log"
    manage(server, "migrate", "-v0")
    migrated = log.stat().st_size
    manage(server, "shell", "-v0", "-c", ENQUEUE)
    manage(server, "hipq_worker", "--until-idle", "-v0")
    done = manage(server, "shell", "-v0", "-c", ANSWER)
    manage(server, "hipq_worker", "--until-idle", "-v0")
    manage(server, "hipq_status")
    manage(server, "hipq_prune", "--days", "0")
    left = manage(server, "shell", "-v0", "-c", PRUNED)
    sent = log.read_text()

    assert (done, left) == ("43 2", "0")
    assert FAST.findall(sent) == []
    triggers = {name[:-9] for name in OURS.findall(sent[:migrated])}
    assert triggers == {"hipq_job_guard", "hipq_job_parents", "hipq_job_children"}
    assert OURS.findall(sent[migrated:]) == []
