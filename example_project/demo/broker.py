"""A Kafka for the demo of the orders.

A real broker needs Java and a download; the demo shall need neither. librdkafka, the library under
confluent-kafka, brings a cluster for its own tests: it speaks Kafka's protocol on a TCP port of
this machine, with consumer groups and offsets, so supplier and consumer use it as they would any
broker. It keeps everything in memory. With KAFKA_BOOTSTRAP_SERVERS in the environment, the demo
uses those brokers instead.
"""

import os
import subprocess
import sys
from types import TracebackType
from typing import Self

START_SECONDS = 20


class BuiltInKafka:
    """The cluster of librdkafka; lives as long as the context.

    In a process of its own, which is killed: to take the cluster down while clients are connected
    may abort the process, or hang.
    """

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(  # noqa: S603 - this file
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        said = self._process.stdout
        self.bootstrap_servers = said.readline().strip() if said else ""
        if not self.bootstrap_servers:
            raise RuntimeError("the built-in Kafka does not start; what it says stands above.")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()


def serve() -> None:
    """Run a cluster, and print where it is, until the standard input is closed."""
    from confluent_kafka import Producer

    cluster = Producer({"test.mock.num.brokers": 1, "log_level": 3})
    brokers = cluster.list_topics(timeout=START_SECONDS).brokers.values()
    sys.stdout.write(",".join(f"{broker.host}:{broker.port}" for broker in brokers) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    serve()
