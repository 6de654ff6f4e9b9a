"""The database server stops, crashes and comes back while workers and consumers run."""

import json
import os
from collections.abc import Iterator
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from django.db import connections
from pytest_django import DjangoDbBlocker, Settings

import hipq_django as hipq
from hipq_django import flow
from hipq_django.models import Answer, Job, Worker
from tests.conftest import ROOT
from tests.kafka import KafkaCluster, kafka_cluster
from tests.postgres import PostgresServer
from tests.processes.conftest import Workers, eventually

pytestmark = [pytest.mark.processes, pytest.mark.postgres, pytest.mark.slow]

ALIAS = "restarted"
JOBS = 2_000


@pytest.fixture
def restarted(
    postgres_server: PostgresServer, settings: Settings, django_db_blocker: DjangoDbBlocker
) -> Iterator[PostgresServer]:
    """A server of the test's own, on which the default instance lives."""
    with psycopg.connect(postgres_server.url("postgres"), autocommit=True) as connection:
        connection.execute("CREATE DATABASE restarted")
    database = deepcopy(connections.databases["default"])
    database |= {"NAME": ALIAS, "HOST": str(postgres_server.directory)}
    connections.databases[ALIAS] = database
    settings.HIPQ = {"default": {"DATABASE": ALIAS}}
    with django_db_blocker.unblock():
        call_command("migrate", database=ALIAS, verbosity=0)
        yield postgres_server
        connections[ALIAS].close()
    del connections[ALIAS]
    del connections.databases[ALIAS]


@pytest.fixture
def workers(restarted: PostgresServer, tmp_path: Path) -> Iterator[Workers]:
    """Workers on that server; they come and go without the other tests' databases."""
    url = restarted.url(ALIAS)
    environment = os.environ | {
        "DATABASE_URL": url,
        "OTHER_DATABASE_URL": url,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "HIPQ_TEST_HEARTBEAT_SECONDS": "0.5",
        "PYTHONPATH": str(ROOT),
    }
    workers = Workers(environment, tmp_path / "workers.log")
    yield workers
    workers.end()


def begun() -> int:
    """Count the workers that have registered: one that finds no database when it starts ends."""
    return Worker.objects.using(ALIAS).filter(state=Worker.State.RUNNING).count()


def test_workers_survive_restarts_of_the_database_server(
    restarted: PostgresServer, workers: Workers
) -> None:
    """A restart in order and a crash; every job is final, the workers never ended."""
    hipq.enqueue_many(hipq.NewJob("quick", {"number": n, "seconds": 0.02}) for n in range(JOBS))
    running = [workers.start("chaos", "-v0") for _ in range(2)]
    eventually(lambda: begun() == 2, "both have begun")

    for left, mode in ((1_500, "fast"), (800, "immediate")):
        eventually(lambda left=left: live() < left, f"fewer than {left} jobs are left")  # type: ignore[misc]  # of the default value
        connections[ALIAS].close()
        restarted.stop(mode)
        restarted.start()

    eventually(lambda: live() == 0, "every job is final", 120)
    results = Job.objects.using(ALIAS).filter(outcome="succeeded").values_list("result", flat=True)
    assert sorted(results) == list(range(JOBS))
    assert [process.poll() for process in running] == [None, None]


def test_messages_of_flows_survive_restarts_of_the_database_server(
    restarted: PostgresServer, workers: Workers
) -> None:
    """A restart in order and a crash: each message arrives once and in order."""
    nodes = [flow.start("pass_on", run=False) for _ in range(3)]
    for one, two in pairwise(nodes):
        one.outputs["out"].connect(two.inputs["x"])
    first, last = nodes[0].inputs["x"], nodes[-1].outputs["out"]
    running = [workers.start("chaos", "-v0") for _ in range(2)]
    eventually(lambda: begun() == 2, "both have begun")

    for number, mode in enumerate(("fast", "immediate")):
        first.write_many(range(number * JOBS, (number + 1) * JOBS))
        eventually(lambda n=number: last.size > n * JOBS, "some have arrived")  # type: ignore[misc]  # of the default value
        connections[ALIAS].close()
        restarted.stop(mode)
        restarted.start()

    eventually(lambda: last.size == 2 * JOBS, "all have arrived", 120)
    eventually(lambda: live() == 0, "every run has ended")
    assert last.peek(3 * JOBS) == list(range(2 * JOBS))
    assert [process.poll() for process in running] == [None, None]


def test_a_consumer_keeps_its_messages_while_the_database_server_restarts(
    restarted: PostgresServer, workers: Workers
) -> None:
    """Nothing is lost, nothing is taken for malformed, and the consumer never ended."""
    number = 1_000
    hipq.enqueue_many(hipq.NewJob("ask", job_key=f"k-{n}") for n in range(number))
    assert workers.run("--until-idle") == 0
    bodies = [b'{"key": "k-%d", "response": %d}' % (n, n) for n in range(number)]
    with kafka_cluster() as kafka:
        consumer = workers.consume("post", HIPQ_TEST_SOURCES=json.dumps(source(kafka)))
        for first, mode in ((0, "fast"), (number // 2, "immediate")):
            eventually(lambda first=first: live() <= number - first, "the others are settled")  # type: ignore[misc]  # of the default value
            kafka.produce("answers", *bodies[first : first + number // 2])
            eventually(lambda first=first: live() < number - first, "one is settled")  # type: ignore[misc]  # of the default value
            connections[ALIAS].close()
            restarted.stop(mode)
            restarted.start()

        eventually(lambda: live() == 0, "every job is settled")
        assert consumer.poll() is None
        consumer.terminate()
        consumer.wait(60)
        assert sum(kafka.committed("shop", "answers", 4)) == number
    assert "event=database_back" in workers.log.read_text()
    assert set(Answer.objects.using(ALIAS).values_list("status", flat=True)) == {"accepted"}


def source(kafka: KafkaCluster) -> dict[str, Any]:
    """Return the setting of a source that reads a few messages at a time."""
    config = {"bootstrap.servers": kafka.bootstrap, "group.id": "shop"}
    return {
        "post": {
            "SOURCE": "hipq_django.sources.kafka.KafkaSource",
            "OPTIONS": {"topics": ["answers"], "config": config},
            "MAP": "tests.mailbox.read",
            "BATCH_SIZE": 20,
        }
    }


def live() -> int:
    """Return how many jobs are not final."""
    return Job.objects.using(ALIAS).live().count()
