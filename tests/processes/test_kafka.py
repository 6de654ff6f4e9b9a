"""`hipq_consume` and Kafka: real processes, Kafka's protocol over TCP; see `tests.kafka`."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command

import hipq_django as hipq
from hipq_django.exceptions import ConfigurationError
from hipq_django.models import Answer, Job, Worker
from hipq_django.sources.settings import source_settings
from tests.hand_worker import HandWorker
from tests.kafka import KafkaCluster, kafka_cluster
from tests.processes.conftest import Process, Workers, eventually

pytestmark = [pytest.mark.processes, pytest.mark.slow]

TOPIC = "answers"
GROUP = "shop"
PARTITIONS = 4


@pytest.fixture
def kafka() -> Iterator[KafkaCluster]:
    """A cluster of three brokers with one topic."""
    with kafka_cluster(3) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS)
        yield cluster


@pytest.fixture
def consumers(workers: Workers, kafka: KafkaCluster) -> Workers:
    """Starts consumers of that topic."""
    workers.environment["HIPQ_TEST_SOURCES"] = json.dumps(sources(kafka))
    return workers


def sources(kafka: KafkaCluster) -> dict[str, Any]:
    config = {
        "bootstrap.servers": kafka.bootstrap,
        "group.id": GROUP,
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
            "OPTIONS": {"topics": [TOPIC], "config": config},
            "MAP": "tests.mailbox.read",
            "BATCH_SIZE": 50,
        }
    }


def ask(first: int, number: int) -> None:
    """Let jobs wait for the answers with these numbers."""
    jobs = [hipq.NewJob("ask", job_key=f"k-{first + n}") for n in range(number)]
    hipq.enqueue_many(jobs)
    HandWorker().run_until_idle()


def answer(kafka: KafkaCluster, first: int, number: int) -> None:
    """Send the answers with these numbers."""
    bodies = [{"key": f"k-{n}", "response": n} for n in range(first, first + number)]
    for n, body in enumerate(bodies):
        kafka.produce(TOPIC, json.dumps(body).encode(), partition=n % PARTITIONS)


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
    kafka: KafkaCluster, consumers: Workers
) -> None:
    ask(0, 300)
    answer(kafka, 0, 300)
    consumer = consumers.consume("post")

    wait_until_settled(300)
    consumers_seen = json.loads(status("--json"))["consumers"]
    table = status()
    code = stop(consumer)

    assert code == 0
    assert_each_has_its_own_answer()
    assert sum(kafka.committed(GROUP, TOPIC, PARTITIONS)) == 300
    assert [(c["source"], c["state"]) for c in consumers_seen] == [("post", "running")]
    assert consumers_seen[0]["name"] in table
    assert Worker.objects.exclude(source="NONE").get().state == "stopped"


def status(*options: str) -> str:
    out = StringIO()
    call_command("hipq_status", *options, stdout=out)
    return out.getvalue()


def test_a_poison_message_is_kept_and_does_not_block_its_partition(
    kafka: KafkaCluster, consumers: Workers
) -> None:
    ask(0, 2)
    good = [json.dumps({"key": f"k-{n}", "response": n}).encode() for n in range(2)]
    messages = (good[0], b"\xff{", None, b"[" * 50_000, good[1])
    kafka.produce(TOPIC, *messages, partition=1, key=b"order", headers={"trace": b"7"})
    consumer = consumers.consume("post")

    wait_until_settled(2)
    assert stop(consumer) == 0

    malformed = Answer.objects.filter(kind="malformed").order_by("pk")
    assert [row.payload.get("body", "binary") for row in malformed] == ["binary", "", "[" * 50_000]
    assert {(row.payload["key"], row.payload["headers"]["trace"]) for row in malformed} == {
        ("order", "7")
    }
    assert kafka.committed(GROUP, TOPIC, PARTITIONS) == [0, 5, 0, 0]


def test_consumers_side_by_side_share_the_partitions_and_survive_each_other(
    kafka: KafkaCluster, consumers: Workers
) -> None:
    """One is killed, one is stopped; each message is stored once."""
    ask(0, 600)
    processes = [consumers.consume("post") for _ in range(3)]
    answer(kafka, 0, 200)
    wait_until_settled(200)

    processes[0].kill()
    answer(kafka, 200, 200)
    wait_until_settled(400)

    assert stop(processes[1]) == 0
    answer(kafka, 400, 200)
    wait_until_settled(600)

    assert stop(processes[2]) == 0
    assert_each_has_its_own_answer()
    assert sum(kafka.committed(GROUP, TOPIC, PARTITIONS)) == 600


def test_consumers_that_are_killed_again_and_again_lose_and_repeat_nothing(
    kafka: KafkaCluster, consumers: Workers
) -> None:
    number = 1_000
    ask(0, number)
    answer(kafka, 0, number)

    for share in (1, 2, 3):
        consumer = consumers.consume("post")
        eventually(lambda share=share: settled() >= number * share // 5, "some are settled")  # type: ignore[misc]  # of the default value
        consumer.kill()
        consumer.wait()
    consumers.consume("post")

    wait_until_settled(number)
    assert_each_has_its_own_answer()


def test_a_consumer_survives_the_loss_of_all_brokers(
    kafka: KafkaCluster, consumers: Workers
) -> None:
    ask(0, 200)
    answer(kafka, 0, 100)
    consumer = consumers.consume("post")
    wait_until_settled(100)

    kafka.stop_brokers()
    eventually(lambda: "Connection refused" in consumers.log.read_text(), "the loss is noticed")
    kafka.start_brokers()
    answer(kafka, 100, 100)

    wait_until_settled(200)
    assert stop(consumer) == 0
    assert_each_has_its_own_answer()


def test_a_consumer_waits_for_brokers_that_are_not_there_yet_and_can_be_stopped_meanwhile(
    kafka: KafkaCluster, consumers: Workers
) -> None:
    ask(0, 10)
    answer(kafka, 0, 10)
    kafka.stop_brokers()
    stopped = consumers.consume("post")
    eventually(lambda: "Connection refused" in consumers.log.read_text(), "the loss is noticed")
    assert stop(stopped) == 0

    consumers.consume("post")
    kafka.start_brokers()

    wait_until_settled(10)


def test_a_wrong_option_ends_the_command_with_one_line(
    kafka: KafkaCluster, consumers: Workers
) -> None:
    wrong = sources(kafka)
    del wrong["post"]["OPTIONS"]["config"]["bootstrap.servers"]

    process = consumers.consume("post", HIPQ_TEST_SOURCES=json.dumps(wrong))

    assert process.wait(60) == 1
    last = consumers.log.read_text().splitlines()[-1]
    assert last == "CommandError: KafkaSource: config lacks 'bootstrap.servers'; add it."


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"config": {"bootstrap.servers": "x"}}, "config lacks 'group.id'"),
        ({"topics": "answers"}, "topics is 'answers'; give a list of names"),
        ({"config": {"bootstrap.servers": "x", "group.id": "g", "speed": 1}}, '"speed"'),
        (
            {"config": {"bootstrap.servers": "x", "group.id": "g", "enable.auto.commit": True}},
            "remove 'enable.auto.commit'",
        ),
    ],
)
def test_a_wrong_option_is_named(change: dict[str, Any], message: str, kafka: KafkaCluster) -> None:
    wrong = sources(kafka)["post"]
    wrong["OPTIONS"] |= change

    with pytest.raises(ConfigurationError, match=f"^KafkaSource: .*{re.escape(message)}"):
        source_settings("post", wrong).open()
