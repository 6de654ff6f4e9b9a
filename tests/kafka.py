"""A Kafka cluster for tests: the one that lies in librdkafka, the library under confluent-kafka.

A real broker needs Java and a download that a test run should not depend on. librdkafka brings a
cluster for its own tests that speaks Kafka's protocol on TCP ports of 127.0.0.1: topics,
partitions, consumer groups with their rebalances, committed offsets, and brokers that can be taken
away. Clients reach it from other processes as they reach any broker. What it does not have: disks,
replication, transactions, authentication.

`test.mock.num.brokers` starts one too, but gives no way to stop a broker; so its functions are
called directly.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

PATIENCE_SECONDS = 60.0
PRODUCER = 0


@cache
def library() -> Any:
    """Return librdkafka; skip the test where the wheel does not bring it with its cluster."""
    package = Path(confluent_kafka.__file__).parent
    for path in package.parent.glob("confluent_kafka.libs/librdkafka*.so*"):
        found = ctypes.CDLL(str(path))
        if hasattr(found, "rd_kafka_mock_cluster_new"):
            for name in ("conf_new", "new", "mock_cluster_new"):
                getattr(found, f"rd_kafka_{name}").restype = ctypes.c_void_p
            found.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
            return found
    pytest.skip("needs the librdkafka of confluent-kafka's wheel for Linux, which has a cluster")


class KafkaCluster:
    """A running cluster."""

    def __init__(self, brokers: int) -> None:
        self.brokers = brokers
        self._library = library()
        configuration = ctypes.c_void_p(self._library.rd_kafka_conf_new())
        client = self._library.rd_kafka_new(PRODUCER, configuration, None, ctypes.c_size_t(0))
        self._client = ctypes.c_void_p(client)
        self._cluster = ctypes.c_void_p(
            self._library.rd_kafka_mock_cluster_new(self._client, brokers)
        )
        # A real cluster waits for more members too; here that would only make the tests slow.
        self._call("group_initial_rebalance_delay_ms", 0)
        bootstrap: bytes = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster)
        self.bootstrap = bootstrap.decode()
        self._producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5})

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Create a topic."""
        self._call("topic_create", name.encode(), partitions, self.brokers)

    def produce(self, topic: str, *values: bytes | None, **options: Any) -> None:
        """Send messages and wait until the cluster has them."""
        for value in values:
            self._producer.produce(topic, value=value, **options)
            self._producer.poll(0)
        assert self._producer.flush(PATIENCE_SECONDS) == 0

    def committed(self, group: str, topic: str, partitions: int = 1) -> list[int]:
        """Return the committed offset of each partition, 0 for none."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        wanted = [TopicPartition(topic, number) for number in range(partitions)]
        found = consumer.committed(wanted, timeout=PATIENCE_SECONDS)
        consumer.close()
        return [max(partition.offset, 0) for partition in found]

    def stop_brokers(self) -> None:
        """Cut all connections and refuse new ones."""
        for number in range(1, self.brokers + 1):
            self._call("broker_set_down", number)

    def start_brokers(self) -> None:
        """Be there again, with everything that was there before."""
        for number in range(1, self.brokers + 1):
            self._call("broker_set_up", number)

    def close(self) -> None:
        """End the cluster."""
        del self._producer
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._client)

    def _call(self, name: str, *arguments: Any) -> None:
        getattr(self._library, f"rd_kafka_mock_{name}")(self._cluster, *arguments)


@contextmanager
def kafka_cluster(brokers: int = 1) -> Iterator[KafkaCluster]:
    """Run a cluster for as long as the context lasts."""
    cluster = KafkaCluster(brokers)
    try:
        yield cluster
    finally:
        cluster.close()
