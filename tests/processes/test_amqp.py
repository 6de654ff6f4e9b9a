"""`hipq_consume` and a real RabbitMQ, where the machine has one."""

from __future__ import annotations

import json
import os
import signal
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import kombu
import pytest

import hipq_django as hipq
from hipq_django.models import Answer, Job
from tests.hand_worker import HandWorker
from tests.processes.conftest import Process, Workers, eventually
from tests.proxy import Proxy, proxy

pytestmark = pytest.mark.processes

URL = os.environ.get("HIPQ_TEST_AMQP_URL", "amqp://guest:guest@127.0.0.1:5672//")


class RabbitQueue:
    """A queue of one test."""

    def __init__(self, connection: kombu.Connection) -> None:
        self.name = f"hipq-test-{uuid.uuid4()}"
        self._channel = connection.default_channel
        self._channel.queue_declare(self.name, durable=True, auto_delete=False)
        self._producer = kombu.Producer(self._channel)

    def publish(self, *bodies: bytes, **properties: Any) -> None:
        """Send messages with ids of their own."""
        for body in bodies:
            self._producer.publish(
                body,
                routing_key=self.name,
                content_type="application/json",
                content_encoding="binary",
                **({"message_id": str(uuid.uuid4())} | properties),
            )

    def waiting(self) -> int:
        """Return how many messages no consumer has."""
        return int(self._channel.queue_declare(self.name, durable=True, passive=True).message_count)

    def delete(self) -> None:
        """Delete it."""
        self._channel.queue_delete(self.name)


@pytest.fixture(scope="session")
def rabbit() -> Iterator[kombu.Connection]:
    """A connection; skip where there is no RabbitMQ."""
    connection = kombu.Connection(URL)
    try:
        connection.connect()
    except connection.connection_errors as error:
        pytest.skip(
            f"needs RabbitMQ, Debian's package rabbitmq-server or HIPQ_TEST_AMQP_URL: {error}"
        )
    with connection:
        yield connection


@pytest.fixture
def queue(rabbit: kombu.Connection) -> Iterator[RabbitQueue]:
    """A queue of the test's own."""
    queue = RabbitQueue(rabbit)
    yield queue
    queue.delete()


@pytest.fixture
def wire() -> Iterator[Proxy]:
    """The connection to the broker, which can be cut."""
    address = urlsplit(URL)
    with proxy((str(address.hostname), address.port or 5672)) as wire:
        yield wire


@pytest.fixture
def consumers(workers: Workers, queue: RabbitQueue, wire: Proxy) -> Workers:
    """Starts consumers of that queue."""
    workers.environment["HIPQ_TEST_SOURCES"] = json.dumps(sources(queue, wire))
    return workers


def sources(queue: RabbitQueue, wire: Proxy) -> dict[str, Any]:
    address = urlsplit(URL)
    netloc = address.netloc.replace(f":{address.port or 5672}", f":{wire.port}")
    url = address._replace(netloc=netloc).geturl()
    return {
        "post": {
            "SOURCE": "hipq_django.sources.amqp.AmqpSource",
            "OPTIONS": {"url": url, "queue": queue.name, "prefetch": 30},
            "MAP": "tests.mailbox.read",
            "BATCH_SIZE": 20,
        }
    }


def ask(number: int) -> None:
    hipq.enqueue_many([hipq.NewJob("ask", job_key=f"k-{n}") for n in range(number)])
    HandWorker().run_until_idle()


def bodies(first: int, number: int) -> list[bytes]:
    return [b'{"key": "k-%d", "response": %d}' % (n, n) for n in range(first, first + number)]


def wait_until_settled(number: int) -> None:
    eventually(lambda: Job.objects.final().count() == number, f"{number} jobs are settled")


def stop(process: Process) -> int:
    process.send_signal(signal.SIGTERM)
    return process.wait(60)


def assert_each_has_its_own_answer(number: int) -> None:
    jobs = Job.objects.values_list("job_key", "result", "outcome")
    assert all((key, outcome) == (f"k-{result}", "succeeded") for key, result, outcome in jobs)
    assert Answer.objects.filter(status="accepted").count() == Answer.objects.count() == number


def test_answers_settle_their_jobs_and_are_acknowledged(
    queue: RabbitQueue, consumers: Workers
) -> None:
    ask(100)
    queue.publish(*bodies(0, 100))
    consumer = consumers.consume("post")

    wait_until_settled(100)

    assert stop(consumer) == 0
    eventually(lambda: queue.waiting() == 0, "nothing is left")
    assert_each_has_its_own_answer(100)


def test_a_consumer_connects_again_when_the_connection_is_cut(
    queue: RabbitQueue, consumers: Workers, wire: Proxy
) -> None:
    number, share = 150, 50
    ask(number)
    consumer = consumers.consume("post")

    for first in (0, share):
        queue.publish(*bodies(first, share))
        # More than was there before the last cut: it is connected again.
        eventually(lambda first=first: Job.objects.final().count() >= first + 10, "some are")  # type: ignore[misc]  # of the default value
        wire.cut()
    queue.publish(*bodies(2 * share, share))

    wait_until_settled(number)
    assert stop(consumer) == 0
    eventually(lambda: queue.waiting() == 0, "nothing is left")
    assert_each_has_its_own_answer(number)
    assert wire.accepted >= 3


def test_messages_of_a_killed_consumer_go_to_another_one(
    queue: RabbitQueue, consumers: Workers
) -> None:
    number = 200
    ask(number)
    queue.publish(*bodies(0, number))
    first, second = consumers.consume("post"), consumers.consume("post")

    eventually(lambda: Job.objects.final().count() > 40, "some are settled")
    first.kill()

    wait_until_settled(number)
    assert stop(second) == 0
    eventually(lambda: queue.waiting() == 0, "nothing is left")
    assert_each_has_its_own_answer(number)
