"""The database server stops, crashes and comes back while workers and consumers run."""

import json
import uuid
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from django.db import connection, connections
from environ import Env

import hipq_django as hipq
from hipq_django import flow
from hipq_django.models import Answer, Job, Worker
from tests.kafka import KafkaCluster
from tests.plugin import renamed
from tests.postgres import PostgresServer, as_owner
from tests.processes.conftest import Workers, eventually
from tests.processes.test_restore import dump, restore

pytestmark = [pytest.mark.processes, pytest.mark.postgres]

SHARE = 150
"""How many jobs, messages and answers there are before each of two restarts."""


@pytest.fixture
def restarted(
    postgres_server: PostgresServer, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PostgresServer]:
    """A server of the test's own, which the workers use, and this process too."""
    url = as_owner(postgres_server.url("restarted"))
    with psycopg.connect(renamed(url, "postgres"), autocommit=True) as session:
        session.execute("CREATE DATABASE restarted")
    restore(url, dump(workers.environment["DATABASE_URL"]))
    workers.environment |= {"DATABASE_URL": url, "OTHER_DATABASE_URL": url}
    with monkeypatch.context() as patch:
        connection.close()
        moved = {**connection.settings_dict, **Env.db_url_config(url)}
        patch.setattr(connections["default"], "settings_dict", moved)
        yield postgres_server
        connection.close()


class Load:
    """Jobs, messages of a pipeline of three nodes, and answers through Kafka."""

    def __init__(self, kafka: KafkaCluster) -> None:
        self._kafka, self.topic = kafka, f"answers-{uuid.uuid4()}"
        kafka.create_topic(self.topic)
        nodes = [flow.start("pass_on", run=False) for _ in range(3)]
        for one, two in pairwise(nodes):
            one.outputs["out"].connect(two.inputs["x"])
        self._first, self._last = nodes[0].inputs["x"], nodes[-1].outputs["out"]
        hipq.enqueue_many(hipq.NewJob("ask", job_key=f"k-{n}") for n in range(2 * SHARE))

    @property
    def sources(self) -> str:
        """The setting by which a consumer reads the answers, a few at a time."""
        config = {"bootstrap.servers": self._kafka.bootstrap, "group.id": self.topic}
        source = {
            "SOURCE": "hipq_django.sources.kafka.KafkaSource",
            "OPTIONS": {"topics": [self.topic], "config": config},
            "MAP": "tests.mailbox.read",
            "BATCH_SIZE": 20,
        }
        return json.dumps({"post": source})

    def send(self, numbers: Sequence[int]) -> None:
        """Let there be more of each kind, and wait until some of each are done."""
        hipq.enqueue_many(hipq.NewJob("quick", {"number": n, "seconds": 0.02}) for n in numbers)
        self._first.write_many(numbers)
        bodies = [b'{"key": "k-%d", "response": %d}' % (n, n) for n in numbers]
        self._kafka.produce(self.topic, *bodies)
        eventually(lambda: all(len(done) > numbers[0] for done in self.done()), "some are done")

    def done(self) -> list[list[Any]]:
        """Return what has come out of each kind."""
        succeeded = Job.objects.filter(outcome="succeeded")
        of_jobs = [succeeded.filter(job_type__name=name) for name in ("quick", "ask")]
        results = [sorted(jobs.values_list("result", flat=True)) for jobs in of_jobs]
        return [*results, self._last.peek(3 * SHARE)]

    def committed(self) -> int:
        """Return how many answers the consumer has acknowledged."""
        return sum(self._kafka.committed(self.topic, self.topic))


def begun() -> int:
    """Count the processes that have registered: one that finds no database at its start ends."""
    return Worker.objects.filter(state=Worker.State.RUNNING).count()


def test_workers_and_consumers_survive_restarts_of_the_database_server(
    restarted: PostgresServer, workers: Workers, kafka: KafkaCluster
) -> None:
    """A restart in order and a crash: nothing is lost or done twice, and no process ends."""
    load = Load(kafka)
    assert workers.run("--until-idle") == 0
    consumer = workers.consume("post", HIPQ_TEST_SOURCES=load.sources)
    running = [consumer, workers.start("-v0"), workers.start("-v0")]
    eventually(lambda: begun() == len(running), "all have begun")

    for number, mode in enumerate(("fast", "immediate")):
        load.send(range(number * SHARE, (number + 1) * SHARE))
        connection.close()
        restarted.stop(mode)
        restarted.start()

    everything = list(range(2 * SHARE))
    eventually(lambda: load.done() == [everything] * 3, "all are done, once and in order")
    eventually(lambda: not Job.objects.live().exists(), "every run has ended")
    assert set(Answer.objects.values_list("status", flat=True)) == {"accepted"}
    assert [process.poll() for process in running] == [None] * len(running)
    consumer.terminate()
    assert consumer.wait(60) == 0
    assert load.committed() == len(everything)
    assert "event=database_back" in workers.log.read_text()
