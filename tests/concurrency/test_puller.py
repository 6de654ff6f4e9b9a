"""The thread that pulls for hungry queues: at once, and then not too often."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from queue import SimpleQueue
from typing import Any

import pytest

from hipq_django.conf.instances import get_instance
from hipq_django.database.clock import steady
from hipq_django.domain.sharding import Shard
from hipq_django.processes import pulling
from hipq_django.processes.pulling import Puller
from hipq_django.sharding.map import Shards
from tests.processes.conftest import eventually

SECONDS = 0.2
LONG_SECONDS = 30


class Pulls:
    """What stands for the other shards, and notes each pull."""

    def __init__(self) -> None:
        self.got = Decimal(0)
        self.made: SimpleQueue[tuple[str, float]] = SimpleQueue()
        self.woken: SimpleQueue[str] = SimpleQueue()

    def pull(self, config: Any, number: int, queue: str, aliases: Any) -> Decimal:
        self.made.put((queue, steady()))
        if queue == "broken":
            raise ValueError(queue)
        return self.got

    def next(self) -> tuple[str, float]:
        return self.made.get(timeout=LONG_SECONDS)


@pytest.fixture
def pulls(monkeypatch: pytest.MonkeyPatch) -> Pulls:
    made = Pulls()
    known = Shards((Shard(0, "default"), Shard(1, "other")), 2, 0, is_stored=True)
    monkeypatch.setattr(pulling, "pull", made.pull)
    monkeypatch.setattr(pulling, "map_of", lambda config: known)
    monkeypatch.setattr(pulling, "LEAST_SECONDS", SECONDS)
    monkeypatch.setattr(pulling, "MOST_SECONDS", SECONDS)
    return made


@pytest.fixture
def puller(pulls: Pulls) -> Iterator[Puller]:
    thread = Puller(get_instance(), pulls.woken.put)
    thread._thread.start()
    yield thread
    thread.close()
    thread._thread.join(LONG_SECONDS)


def pull_once(puller: Puller, pulls: Pulls, queue: str) -> float:
    """Let a queue pull, and wait for the end; return when it began."""
    puller.note([queue])
    _, moment = pulls.next()
    eventually(lambda: queue not in puller._hungry, "the pull is over")
    return moment


def test_a_hungry_queue_pulls_at_once_and_again_after_a_while(puller: Puller, pulls: Pulls) -> None:
    first = pull_once(puller, pulls, "bank")
    puller.note(["bank"])
    puller.note(["other"])  # which does not wait for it

    later = dict([pulls.next(), pulls.next()])

    assert later["bank"] >= first + SECONDS
    assert later["other"] < later["bank"]


def test_a_worker_is_woken_if_something_came(puller: Puller, pulls: Pulls) -> None:
    pull_once(puller, pulls, "bank")
    pulls.got = Decimal(1)
    puller.note(["bank"])

    assert pulls.woken.get(timeout=LONG_SECONDS) == "bank"


def test_a_pull_that_fails_stops_no_other(
    puller: Puller, pulls: Pulls, caplog: pytest.LogCaptureFixture
) -> None:
    pull_once(puller, pulls, "broken")
    puller.note(["bank"])

    assert pulls.next()[0] == "bank"
    assert "event=pull_failed" in caplog.text
