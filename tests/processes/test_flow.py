"""Flows run by real workers, which are killed."""

import subprocess
from collections.abc import Sequence
from itertools import pairwise

import pytest

from hipq_django import flow
from hipq_django.flow.models import Message, Wake
from hipq_django.models import Attempt, Job
from tests.processes.conftest import Workers, eventually

pytestmark = pytest.mark.processes

MESSAGES, PAGE, KILLED_EVERY = 20_000, 500, 4_000


def pipeline(component: str = "pass_on", length: int = 3) -> Sequence[flow.Node]:
    """Return nodes, each of which hands on to the next."""
    nodes = [flow.start(component, run=False) for _ in range(length)]
    for one, two in pairwise(nodes):
        one.outputs["out"].connect(two.inputs["x"])
    return nodes


def arrived(node: flow.Node) -> list[int]:
    """Return what lies on the out-port of a node."""
    return node.outputs["out"].peek(2 * MESSAGES)


class Fleet:
    """Two workers at least, of which one is killed whenever it runs a node."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._running = [self._start() for _ in range(2)]
        self._hit = set[int]()
        """Runs whose worker was killed: none is to look as if it killed its workers."""

    def _start(self) -> subprocess.Popen[bytes]:
        return self._workers.start("chaos", "-v0")

    def kill_one_at_work(self) -> None:
        """Wait until a worker runs a node, and kill it; another takes its place."""
        eventually(self._kill, "a run is in flight")

    def _kill(self) -> bool:
        runs = Job.objects.running().exclude(pk__in=self._hit).filter(prefetched=False)
        for run, name in runs.values_list("pk", "worker__name"):
            for process in [p for p in self._running if name.endswith(f":{p.pid}")]:
                process.kill()
                self._running.remove(process)
                self._hit.add(run)
                self._running.append(self._start())
                return True
        return False


def lost_attempts() -> int:
    """Return how many runs have lost their worker, and were begun once more."""
    kinds = (Attempt.Kind.WORKER_LOST, Attempt.Kind.BYSTANDER)
    return Attempt.objects.filter(kind__in=kinds).count()


@pytest.mark.slow
def test_each_message_arrives_once_and_in_order_while_workers_are_killed(workers: Workers) -> None:
    nodes = pipeline("pass_on_slowly")
    fleet = Fleet(workers)
    for first in range(0, MESSAGES, PAGE):
        nodes[0].inputs["x"].write_many(range(first, first + PAGE))
        if first % KILLED_EVERY == 0:
            fleet.kill_one_at_work()
    eventually(lambda: nodes[-1].outputs["out"].size == MESSAGES, "all have arrived", 240)
    eventually(lambda: not Job.objects.live().exists(), "every run has ended")

    assert lost_attempts() >= 3, "the kills have met no run"
    assert arrived(nodes[-1]) == list(range(MESSAGES))
    assert Message.objects.count() == MESSAGES
    assert not Wake.objects.exists()
    assert all(node.status == "completed" for node in nodes)


def test_a_message_wakes_an_idle_worker(workers: Workers) -> None:
    nodes = pipeline()
    workers.start("chaos", "-v0")
    for number in range(3):
        nodes[0].inputs["x"].write(number)
        eventually(lambda: nodes[-1].outputs["out"].size == number + 1, "it has arrived", 30)  # noqa: B023 - called in this round

    assert arrived(nodes[-1]) == [0, 1, 2]
