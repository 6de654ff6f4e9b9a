"""A Kafka for the demo of the orders.

A real broker needs Java and a download; the demo shall need neither. librdkafka, the library under
confluent-kafka, brings a cluster for its own tests: it speaks Kafka's protocol on a TCP port of
this machine, with consumer groups and offsets, so supplier and consumer use it as they would any
broker. It keeps everything in memory and ends with this process. With KAFKA_BOOTSTRAP_SERVERS in
the environment, the demo uses those brokers instead.
"""

from types import TracebackType
from typing import Self

from confluent_kafka import Producer

START_SECONDS = 20


class BuiltInKafka:
    """The cluster of librdkafka; lives as long as the context."""

    def __enter__(self) -> Self:
        self._cluster = Producer({"test.mock.num.brokers": 1, "log_level": 3})
        brokers = self._cluster.list_topics(timeout=START_SECONDS).brokers.values()
        self.bootstrap_servers = ",".join(f"{b.host}:{b.port}" for b in brokers)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        del self._cluster
