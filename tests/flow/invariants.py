"""What must hold of nodes and their messages after every step, whatever the steps were.

Each value that the tests write is a number of its own, and no port leads to more than one other,
so a number lies in one place, or was taken by somebody who knows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from django.db.models import F

from hipq_django.domain.states import State
from hipq_django.flow.models import (
    Alias,
    Channel,
    Connection,
    Message,
    Node,
    NodePort,
    StagedJob,
    Wake,
)
from hipq_django.flow.values import Rest
from hipq_django.models import Job
from tests.invariants import Row, Rows

MAX_DEPTH = 10
UNDONE = -1
"""What a run writes before it raises."""


@dataclass(frozen=True)
class FlowSnapshot:
    """The rows of flows as they stand between two steps."""

    nodes: Rows
    ports: Rows
    messages: Rows
    runs: Rows
    """The live jobs of components."""
    woken: set[int]
    """Nodes that have a wake."""

    @classmethod
    def take(cls) -> FlowSnapshot:
        """Read all rows, in the order of their ids."""
        live = Job.objects.live().filter(job_type__kind="flow.component")
        return cls(
            nodes=_by_id(Node.objects.all()),
            ports=_by_id(NodePort.objects.all()),
            messages=_by_id(Message.objects.annotate(node=F("port__node"))),
            runs=_by_id(live),
            woken=set(Wake.objects.values_list("node_id", flat=True)),
        )

    @property
    def places(self) -> dict[int, int]:
        """The port on which each number lies."""
        return {message["data"]: message["port_id"] for message in self.messages.values()}

    @property
    def asked_about(self) -> set[int]:
        """The numbers that were read by runs which wait for their answers: they lie there still."""
        pending = (node["pending"].get("effects") or {} for node in self.nodes.values())
        taken = {pk for effects in pending for pk in effects.get("taken", ())}
        return {message["data"] for pk, message in self.messages.items() if pk in taken}

    def unread(self) -> set[int]:
        """Return the nodes on whose in-ports something lies."""
        ports = {message["port_id"] for message in self.messages.values()}
        found = (self.ports[port] for port in ports if port in self.ports)
        return {port["node_id"] for port in found if port["direction"] == "in"}


def _by_id(rows: Any) -> Rows:
    return {row["id"]: dict(row) for row in rows.order_by("pk").values()}


def check_flow(now: FlowSnapshot, batches: Iterable[list[int]]) -> None:
    """Fail unless the rows are sound; `batches` are numbers that were written in this order."""
    no_number_lies_in_two_places(now)
    numbers_of_a_writer_keep_their_order(now, batches)
    a_node_has_one_live_run(now)
    no_data_sleeps(now)
    nodes_are_a_forest(now)
    nothing_is_left_of_what_is_gone(now)
    what_is_terminated_has_no_run(now)
    what_was_undone_is_nowhere(now)


def no_number_lies_in_two_places(now: FlowSnapshot) -> None:
    """F1: a message is taken once, by a run that is committed with what it wrote."""
    count = Counter(message["data"] for message in now.messages.values())
    twice = [number for number, times in count.items() if times > 1]
    assert not twice, f"in two places: {twice}"


def numbers_of_a_writer_keep_their_order(now: FlowSnapshot, batches: Iterable[list[int]]) -> None:
    """F2: on each port, what one writer wrote lies in the order of its writing."""
    found: dict[int, list[int]] = {}
    for message in now.messages.values():
        found.setdefault(message["port_id"], []).append(message["data"])
    for batch in batches:
        for numbers in found.values():
            own = [number for number in numbers if number in batch]
            assert all(a < b for a, b in pairwise(own)), f"{numbers} of {batch}"


def a_node_has_one_live_run(now: FlowSnapshot) -> None:
    """F3: its row names it, and other runs are put aside when they are claimed."""
    runs: dict[int, list[Row]] = {}
    for run in now.runs.values():
        runs.setdefault(run["job_data"]["node"], []).append(run)
    for pk, node in now.nodes.items():
        own = [run["id"] for run in runs.get(pk, ())]
        assert len(own) <= 1, f"{len(own)} live runs of node {pk}: {own}"
        if own and node["rest"] != Rest.TERMINATED:
            assert node["job_id"] in own, f"node {pk} has {node['job_id']}, and {own} is live"


def no_data_sleeps(now: FlowSnapshot) -> None:
    """F4: where something is unread there is a wake, or a run, or a reason why there is none."""
    for pk in now.unread():
        node = now.nodes.get(pk)
        if node is None or node["paused"] or node["rest"] not in (Rest.COMPLETED, Rest.SUSPENDED):
            continue
        assert pk in now.woken or node["job_id"] is not None, f"data sleeps on node {node}"


def nodes_are_a_forest(now: FlowSnapshot) -> None:
    """F6: no node is its own ancestor, and each has a way to its root that is not too long."""
    for pk in now.nodes:
        above, depth = now.nodes[pk]["parent_id"], 1
        while above is not None:
            assert depth < MAX_DEPTH, f"a ring, or too deep: node {pk}"
            above, depth = now.nodes[above]["parent_id"], depth + 1
    aliases = Alias.objects.values_list("node_id", flat=True)
    assert set(aliases) <= now.nodes.keys(), "an alias of a node that is gone"


def nothing_is_left_of_what_is_gone(now: FlowSnapshot) -> None:
    """F6: what belongs to a node or a port goes with it, which no constraint sees to."""
    nodes = {port["node_id"] for port in now.ports.values()}
    nodes |= set(StagedJob.objects.values_list("node_id", flat=True))
    assert nodes <= now.nodes.keys(), f"ports or jobs of nodes that are gone: {nodes}"
    ports = {message["port_id"] for message in now.messages.values()}
    ports |= set(Channel.objects.values_list("port_id", flat=True))
    for ends in Connection.objects.values_list("source_id", "target_id"):
        ports |= set(ends)
    assert ports <= now.ports.keys(), f"rows of ports that are gone: {ports - now.ports.keys()}"


def what_is_terminated_has_no_run(now: FlowSnapshot) -> None:
    """F7: nothing is run that was terminated, until somebody wants it."""
    for node in now.nodes.values():
        if node["rest"] == Rest.TERMINATED:
            assert node["job_id"] is None, node


def what_was_undone_is_nowhere(now: FlowSnapshot) -> None:
    """F5: a run that raised has changed nothing after its last mark."""
    for node in now.nodes.values():
        assert "undone" not in node["state_values"], node
        assert "undone" not in node["name"], node
    for message in now.messages.values():
        assert message["data"] != UNDONE, message


def is_waiting(run: Row) -> bool:
    """Whether a run waits for its answer."""
    return run["state"] == State.RUNNING and run["worker_id"] is None
