"""Messages from RabbitMQ and other AMQP brokers, by kombu; needs the extra `amqp`.

Consumers of one queue share its messages. A message is acknowledged after the database transaction;
if its consumer is gone, it is delivered again to another one. The connection is not repaired here:
a method that raises lets the consumer process make a new source.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from hipq_django.exceptions import ConfigurationError
from hipq_django.sources.protocol import Received

GATHER_SECONDS = 0.01
"""How long after another message one may arrive and still be in the same batch."""

HEARTBEAT_SECONDS = 60


class AmqpSource:
    """Reads a queue.

    `url` is the broker's, `amqp://user:password@host:5672/vhost`; `ssl` goes to kombu's Connection.
    The queue must exist, unless `declare` says to create it, durable and with `arguments` such as
    `{"x-queue-type": "quorum"}`. This consumer has at most `prefetch` unacknowledged messages; it
    should be at least BATCH_SIZE.

    The id of a message is the one that its sender gave it. Without one, an answer that is delivered
    again is recognized only by its content, see the guarantees.
    """

    def __init__(
        self,
        url: str,
        queue: str,
        *,
        prefetch: int = 500,
        declare: bool = False,
        arguments: Mapping[str, Any] | None = None,
        ssl: Any = None,
    ) -> None:
        _check(url, queue, prefetch)
        try:
            import kombu
        except ImportError as error:
            raise ConfigurationError(
                "AmqpSource needs kombu: pip install 'hipq-django[amqp]'."
            ) from error
        self._fetched: deque[Received] = deque()
        self._connection = kombu.Connection(url, ssl=ssl, heartbeat=HEARTBEAT_SECONDS)
        self._queue = kombu.Queue(
            queue, durable=True, queue_arguments=dict(arguments or {}), no_declare=not declare
        )
        self._prefetch = prefetch
        self._consumer: Any = None
        self._kombu = kombu

    def receive(self, max_messages: int, timeout: float) -> Sequence[Received]:
        """Return the available messages; wait for the first one."""
        if self._consumer is None:
            self._start()
        self._connection.heartbeat_check()
        end = time.monotonic() + timeout
        while not self._fetched and time.monotonic() < end:
            self._fetch(end - time.monotonic())
        while 0 < len(self._fetched) < max_messages and self._fetch(GATHER_SECONDS):
            pass
        number = min(max_messages, len(self._fetched))
        return [self._fetched.popleft() for _ in range(number)]

    def acknowledge(self, received: Sequence[Received]) -> None:
        """Acknowledge these and, as the protocol has it, all that were delivered before."""
        received[-1].receipt.ack(multiple=True)

    def close(self) -> None:
        """Close the connection: the broker delivers unacknowledged messages to another consumer."""
        self._connection.release()

    def _start(self) -> None:
        self._connection.connect()
        consumer = self._kombu.Consumer(
            self._connection.channel(),
            queues=[self._queue],
            on_message=self._take,
            prefetch_count=self._prefetch,
            auto_declare=not self._queue.no_declare,
        )
        consumer.consume()
        self._consumer = consumer

    def _take(self, message: Any) -> None:
        body = message.body
        self._fetched.append(
            Received(
                body=body if isinstance(body, bytes) else str(body).encode(),
                message_id=message.properties.get("message_id") or None,
                key=str(message.delivery_info.get("routing_key") or "").encode(),
                headers=dict(message.headers or {}),
                receipt=message,
            )
        )

    def _fetch(self, seconds: float) -> bool:
        """Handle the broker's next message; return False if none came in time."""
        try:
            self._connection.drain_events(timeout=max(seconds, 0.001))
        except TimeoutError:
            return False
        return True


def _check(url: object, queue: object, prefetch: object) -> None:
    if not isinstance(url, str) or "://" not in url:
        raise ConfigurationError(
            "AmqpSource: url is not an address; give amqp://user:password@host:5672/vhost."
        )
    if not isinstance(queue, str) or not queue:
        raise ConfigurationError(f"AmqpSource: queue is {queue!r}; give the name of a queue.")
    if not isinstance(prefetch, int) or not 1 <= prefetch <= 65_535:
        raise ConfigurationError(f"AmqpSource: prefetch is {prefetch!r}; give 1 to 65,535.")
