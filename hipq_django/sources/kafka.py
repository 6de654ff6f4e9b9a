"""Messages from Kafka, by confluent-kafka; needs the extra `kafka`.

A consumer is a member of a group: the members share the partitions of the topics, which are
distributed again when a member joins, leaves or dies. Offsets are committed after the database
transaction: `processes.consumer` receives messages and hands them to `answers.intake`, which stores
them. The library itself handles the loss of brokers: it reconnects, and finds the new
leaders.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from hipq_django import events
from hipq_django.exceptions import ConfigurationError
from hipq_django.sources.protocol import Received

if TYPE_CHECKING:
    from confluent_kafka import Message

logger = logging.getLogger("hipq_django.kafka")

REPEAT_SECONDS = 10.0

DEFAULTS = {"auto.offset.reset": "earliest"}
"""A new group begins at the oldest message, so that it misses none."""

MAX_TOPIC_CHARS = 200


class OnceInAWhile(logging.Filter):
    """Lets the same text through once in ten seconds.

    While no broker can be reached the library logs each try, many in a second.
    """

    _DIGITS = re.compile(r"\d+")

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the last such text is long enough ago; different numbers do not matter."""
        text, now = self._DIGITS.sub("", record.getMessage()), time.monotonic()
        if now - self._last.get(text, -REPEAT_SECONDS) < REPEAT_SECONDS:
            return False
        self._last[text] = now
        return True


class KafkaSource:
    """Reads topics as a member of a consumer group.

    `config` is the library's own configuration, with at least `bootstrap.servers` and `group.id`.
    The id of a message is topic, partition, offset and timestamp; the timestamp distinguishes a
    message from the one at the same offset of a topic that was deleted and created again.
    """

    def __init__(self, topics: Sequence[str], config: Mapping[str, Any]) -> None:
        names = _checked_topics(topics)
        options = _checked_config(config)
        try:
            import confluent_kafka
        except ImportError as error:
            raise ConfigurationError(
                "KafkaSource needs confluent-kafka: pip install 'hipq-django[kafka]'."
            ) from error
        self._kafka = confluent_kafka
        try:
            self._consumer = confluent_kafka.Consumer(
                {**options, "on_commit": _log_refused_commit}, logger=logger
            )
        except (confluent_kafka.KafkaException, TypeError, ValueError) as error:
            raise ConfigurationError(f"KafkaSource: config is refused: {error}.") from error
        self._consumer.subscribe(names, on_assign=_log_assigned, on_revoke=_log_revoked)

    def receive(self, max_messages: int, timeout: float) -> Sequence[Received]:
        """Return the messages that have been fetched; wait only for the first one."""
        first = self._consumer.poll(timeout)
        if first is None:
            return []
        rest = self._consumer.consume(max_messages - 1, timeout=0) if max_messages > 1 else []
        return [_received(message) for message in (first, *rest) if self._is_message(message)]

    def acknowledge(self, received: Sequence[Received]) -> None:
        """Commit the offsets behind these, without waiting for the broker.

        A commit that never arrives does no harm: a later one covers it, or the messages are
        delivered again.
        """
        receipts = sorted(message.receipt for message in received)
        ends = {(topic, partition): offset for topic, partition, offset in receipts}
        offsets = [
            self._kafka.TopicPartition(topic, partition, offset + 1)
            for (topic, partition), offset in ends.items()
        ]
        if offsets:
            self._consumer.commit(offsets=offsets, asynchronous=True)

    def close(self) -> None:
        """Finish the commits and leave the group: other members get the partitions at once."""
        self._consumer.close()

    def _is_message(self, message: Message) -> bool:
        """Return whether it is a message, and not an error; most errors pass by themselves."""
        error = message.error()
        if error is None:
            return True
        if error.fatal():
            raise self._kafka.KafkaException(error)
        if error.code() != self._kafka.KafkaError._PARTITION_EOF:
            events.warning("kafka_warning", error.str(), logger=logger)
        return False


logger.addFilter(OnceInAWhile())


def _received(message: Message) -> Received:
    topic, partition, offset = str(message.topic()), message.partition(), message.offset()
    _, timestamp = message.timestamp()
    return Received(
        body=_bytes(message.value()),
        message_id=f"{_short(topic)}:{partition}:{offset}:{timestamp}",
        key=_bytes(message.key()),
        headers=dict(message.headers() or []),
        receipt=(topic, partition, offset),
    )


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value or "").encode()


def _short(topic: str) -> str:
    """Return a topic as the id of a message can hold it."""
    return topic if len(topic) <= MAX_TOPIC_CHARS else sha256(topic.encode()).hexdigest()


def _log_assigned(_consumer: Any, partitions: Sequence[Any]) -> None:
    events.info("partitions_assigned", partitions=_names(partitions))


def _log_revoked(_consumer: Any, partitions: Sequence[Any]) -> None:
    events.info("partitions_revoked", partitions=_names(partitions))


def _log_refused_commit(error: Any, partitions: Sequence[Any]) -> None:
    for partition in partitions:
        refused = error or partition.error
        if refused:
            events.warning("offset_not_committed", str(refused), partitions=_names([partition]))


def _names(partitions: Sequence[Any]) -> str:
    return ",".join(f"{p.topic}:{p.partition}" for p in partitions) or "none"


def _checked_topics(topics: object) -> list[str]:
    named = isinstance(topics, list | tuple) and all(isinstance(t, str) and t for t in topics)
    if named and topics:
        return list(topics)  # type: ignore[call-overload, no-any-return]  # checked just before
    raise ConfigurationError(f"KafkaSource: topics is {topics!r}; give a list of names.")


def _checked_config(config: object) -> dict[str, Any]:
    if not isinstance(config, Mapping):
        raise ConfigurationError(f"KafkaSource: config is a {type(config).__name__}, not a dict.")
    for name in ("bootstrap.servers", "group.id"):
        if not config.get(name):
            raise ConfigurationError(f"KafkaSource: config lacks {name!r}; add it.")
    for name in ("enable.auto.commit", "enable.auto.offset.store"):
        if name in config:
            raise ConfigurationError(
                f"KafkaSource: remove {name!r} from config; offsets are committed only "
                "after the transaction of the database."
            )
    return {**DEFAULTS, **config, "enable.auto.commit": False, "enable.auto.offset.store": False}
