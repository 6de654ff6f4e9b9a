"""`hipq_consume` and Kafka: real processes, Kafka's protocol over TCP; see `tests.kafka`."""

from __future__ import annotations

import json
import signal
import uuid
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command

import hipq_django as hipq
from hipq_django.models import Answer, Job, Worker
from tests.hand_worker import HandWorker
from tests.kafka import KafkaCluster
from tests.processes.conftest import Process, Workers, eventually

pytestmark = pytest.mark.processes

PARTITIONS = 4


class Topic:
    """A topic of one test, with its consumer group."""

    def __init__(self, kafka: KafkaCluster) -> None:
        self.kafka = kafka
        self.name = self.group = f"answers-{uuid.uuid4()}"
        kafka.create_topic(self.name, PARTITIONS)

    def produce(self, *values: bytes | None, **options: Any) -> None:
        """Send messages."""
        self.kafka.produce(self.name, *values, **options)

    def answer(self, first: int, number: int) -> None:
        """Send the answers with these numbers."""
        for n in range(first, first + number):
            body = json.dumps({"key": f"k-{n}", "response": n}).encode()
            self.produce(body, partition=n % PARTITIONS)

    def committed(self) -> list[int]:
        """Return the committed offset of each partition."""
        return self.kafka.committed(self.group, self.name, PARTITIONS)


@pytest.fixture
def topic(kafka: KafkaCluster) -> Iterator[Topic]:
    """A topic of brokers that run again at the end."""
    yield Topic(kafka)
    kafka.start_brokers()


@pytest.fixture
def consumers(workers: Workers, topic: Topic) -> Workers:
    """Starts consumers of that topic."""
    workers.environment["HIPQ_TEST_SOURCES"] = json.dumps(sources(topic))
    return workers


def sources(topic: Topic) -> dict[str, Any]:
    config = {
        "bootstrap.servers": topic.kafka.bootstrap,
        "group.id": topic.group,
        # A member that died is missed after a second or two, not after 45. It has to be more
        # than a second: the cluster of the tests lets those who join wait for the others for
        # this time less a second, or for all of it where it is not more than that, and drops
        # whom it has not heard of for this time, also when it is he who waits. A member that
        # is dropped so gets no answer, and asks again after `max.poll.interval.ms` only. A
        # real cluster drops nobody who waits for it.
        "session.timeout.ms": 1500,
        "heartbeat.interval.ms": 100,
        "reconnect.backoff.max.ms": 200,
        "topic.metadata.refresh.interval.ms": 500,
    }
    return {
        "post": {
            "SOURCE": "hipq_django.sources.kafka.KafkaSource",
            "OPTIONS": {"topics": [topic.name], "config": config},
            "MAP": "tests.mailbox.read",
            "BATCH_SIZE": 50,
        }
    }


def ask(first: int, number: int) -> None:
    """Let jobs wait for the answers with these numbers."""
    jobs = [hipq.NewJob("ask", job_key=f"k-{first + n}") for n in range(number)]
    hipq.enqueue_many(jobs)
    HandWorker().run_until_idle()


def settled() -> int:
    return Job.objects.final().count()


def wait_until_settled(number: int) -> None:
    eventually(lambda: settled() == number, f"{number} jobs are settled")


def assert_each_has_its_own_answer() -> None:
    """Each job has the result that was sent for it, and each message was stored once."""
    jobs = Job.objects.values_list("job_key", "result", "outcome")
    assert all((key, outcome) == (f"k-{result}", "succeeded") for key, result, outcome in jobs)
    assert Answer.objects.count() == settled()
    assert not Answer.objects.exclude(status="accepted").exists()


def stop(process: Process) -> int:
    process.send_signal(signal.SIGTERM)
    return process.wait(60)


def test_answers_settle_their_jobs_and_a_stopped_consumer_leaves_nothing_uncommitted(
    topic: Topic, consumers: Workers
) -> None:
    ask(0, 100)
    topic.answer(0, 100)
    consumer = consumers.consume("post")

    wait_until_settled(100)
    consumers_seen = json.loads(status("--json"))["consumers"]
    table = status()
    code = stop(consumer)

    assert code == 0
    assert_each_has_its_own_answer()
    assert sum(topic.committed()) == 100
    assert [(c["source"], c["state"]) for c in consumers_seen] == [("post", "running")]
    assert consumers_seen[0]["name"] in table
    assert Worker.objects.exclude(source="NONE").get().state == "stopped"


def status(*options: str) -> str:
    out = StringIO()
    call_command("hipq_status", *options, stdout=out)
    return out.getvalue()


def test_a_poison_message_is_kept_and_does_not_block_its_partition(
    topic: Topic, consumers: Workers
) -> None:
    ask(0, 2)
    good = [json.dumps({"key": f"k-{n}", "response": n}).encode() for n in range(2)]
    messages = (good[0], b"\xff{", None, b"[" * 50_000, good[1])
    topic.produce(*messages, partition=1, key=b"order", headers={"trace": b"7"})
    consumer = consumers.consume("post")

    wait_until_settled(2)
    assert stop(consumer) == 0

    malformed = Answer.objects.filter(kind="malformed").order_by("pk")
    assert [row.payload.get("body", "binary") for row in malformed] == ["binary", "", "[" * 50_000]
    assert {(row.payload["key"], row.payload["headers"]["trace"]) for row in malformed} == {
        ("order", "7")
    }
    assert topic.committed() == [0, 5, 0, 0]


def test_consumers_side_by_side_share_the_partitions_and_survive_each_other(
    topic: Topic, consumers: Workers
) -> None:
    """One is killed, one is stopped; each message is stored once."""
    ask(0, 150)
    processes = [consumers.consume("post") for _ in range(3)]
    topic.answer(0, 50)
    wait_until_settled(50)

    processes[0].kill()
    topic.answer(50, 50)
    wait_until_settled(100)

    assert stop(processes[1]) == 0
    topic.answer(100, 50)
    wait_until_settled(150)

    assert stop(processes[2]) == 0
    assert_each_has_its_own_answer()
    assert sum(topic.committed()) == 150


def test_a_consumer_waits_for_brokers_that_are_not_there_yet_and_can_be_stopped_meanwhile(
    topic: Topic, consumers: Workers
) -> None:
    ask(0, 10)
    topic.answer(0, 10)
    topic.kafka.stop_brokers()
    stopped = consumers.consume("post")
    eventually(lambda: "Connection refused" in consumers.log.read_text(), "the loss is noticed")
    assert stop(stopped) == 0

    consumers.consume("post")
    topic.kafka.start_brokers()

    wait_until_settled(10)
