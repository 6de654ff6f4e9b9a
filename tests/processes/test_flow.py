"""Flows run by real workers, which are killed."""

import math
import time
from collections.abc import Sequence
from itertools import pairwise

import pytest

from hipq_django import flow
from hipq_django.flow.models import Message, Wake
from hipq_django.models import Attempt, Job
from tests.processes.conftest import Process, Workers, eventually, nightly

pytestmark = pytest.mark.processes

PAGE = 500


def pipeline(component: str = "pass_on", length: int = 3) -> Sequence[flow.Node]:
    """Return nodes, each of which hands on to the next."""
    nodes = [flow.start(component, run=False) for _ in range(length)]
    for one, two in pairwise(nodes):
        one.outputs["out"].connect(two.inputs["x"])
    return nodes


def arrived(node: flow.Node) -> list[int]:
    """Return what lies on the out-port of a node."""
    return node.outputs["out"].peek(1_000_000)


class Fleet:
    """Two workers, of which one is killed after some time in which one runs a node."""

    def __init__(self, workers: Workers, kills: float, every: float) -> None:
        self.kills = kills
        """How many are left to do; one that has met no run does not count."""
        self._workers, self._every = workers, every
        self._running = [self._start() for _ in range(2)]
        self._at_work_since: float | None = None
        self._hit = set[int]()
        """Runs whose worker was killed: none is to look as if it killed its workers."""

    def _start(self) -> Process:
        return self._workers.start("chaos", "-v0")

    def kill_in_time(self) -> None:
        """Kill a worker that runs a node, if it is time; another takes its place."""
        for process in self._running if self.kills else ():
            runs = self._runs_of(process)
            if not runs or runs & self._hit:
                continue
            self._at_work_since = self._at_work_since or time.monotonic()
            if time.monotonic() - self._at_work_since >= self._every:
                process.kill()
                process.wait()
                self.kills -= bool(self._runs_of(process))
                self._at_work_since = None
                self._hit |= runs
                self._running.remove(process)
                self._running.append(self._start())
            return

    def _runs_of(self, process: Process) -> set[int]:
        """Return the runs that a worker has in its hands."""
        runs = Job.objects.running().filter(worker__name__endswith=f":{process.pid}")
        return set(runs.values_list("pk", flat=True))


def lost_attempts() -> int:
    """Return how many runs have lost their worker, and were begun once more."""
    kinds = (Attempt.Kind.WORKER_LOST, Attempt.Kind.BYSTANDER)
    return Attempt.objects.filter(kind__in=kinds).count()


@pytest.mark.parametrize(
    ("messages", "kills", "every"), [(2_000, 1, 0.1), nightly(20_000, math.inf, 2)]
)
def test_each_message_arrives_once_and_in_order_while_workers_are_killed(
    workers: Workers, messages: int, kills: float, every: float
) -> None:
    nodes = pipeline("pass_on_slowly")
    fleet = Fleet(workers, kills, every)
    for first in range(0, messages, PAGE):
        nodes[0].inputs["x"].write_many(range(first, first + PAGE))
        fleet.kill_in_time()

    def have_all_arrived() -> bool:
        fleet.kill_in_time()
        return nodes[-1].outputs["out"].size == messages

    eventually(have_all_arrived, "all have arrived", 400)
    # A wake may still become a last run. The nodes are asked in the order in which they wake
    # each other, so one that has completed stays so.
    eventually(lambda: all(node.status == "completed" for node in nodes), "all have completed")

    assert lost_attempts() >= min(kills, 3), "the kills have met no run"
    assert arrived(nodes[-1]) == list(range(messages))
    assert Message.objects.count() == messages
    assert not Wake.objects.exists()


def test_a_message_wakes_an_idle_worker(workers: Workers) -> None:
    nodes = pipeline()
    workers.start("chaos", "-v0")
    for number in range(3):
        nodes[0].inputs["x"].write(number)
        eventually(lambda: nodes[-1].outputs["out"].size == number + 1, "it has arrived", 30)  # noqa: B023 - called in this round

    assert arrived(nodes[-1]) == [0, 1, 2]
