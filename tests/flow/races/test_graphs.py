"""Graphs that are changed while others write to them, on connections whose transactions overlap."""

from __future__ import annotations

import pytest

from hipq_django import flow
from tests.flow.races.conftest import decided_by, end_all, nothing
from tests.job_life.actors import END
from tests.job_life.steps import Steps

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]


@decided_by("graphs.applying.lock_ports", without=nothing)
def test_a_graph_locks_its_ports_together(holds: bool, steps: Steps) -> None:
    """The writer has locked the older port, and waits for the other one."""
    double = {"component": "t.double"}
    graph = flow.start(
        {"nodes": {"older": double, "newer": double}, "edges": ["newer.out -> older.number"]}
    )
    nodes = {
        "newer": {**double, "outputs": {"out": {"channels": ["/out"]}}},
        "older": {**double, "inputs": {"number": {"default": 1}}},
    }
    spec = {"nodes": nodes, "edges": ["newer.out -> older.number"]}
    out = graph.children["newer"].outputs["out"]
    applying = steps.begin("apply", lambda: graph.apply(spec), 'insert into "hipq_flow_channel"')
    steps.begin("write", lambda: out.write(1), END)
    if holds:
        end_all(steps)
        assert graph.children["older"].inputs["number"].peek(2) == [1]
    else:
        with pytest.raises(AssertionError, match="deadlock"):
            steps.go_on(applying, END)


@decided_by("delivering.with_listeners", without=lambda ports, *_: set(ports))
def test_a_writer_to_a_channel_locks_its_ports_together(holds: bool, steps: Steps) -> None:
    """Who listens is older than who speaks: who deletes both locks it first."""
    first = flow.start("t.sum", run=False, inputs={"number": {"channels": ["/news"]}})
    second = first.spawn("child", "t.sum", run=False)
    out = second.outputs["out"]
    out.channels = ["/news"]
    first.terminate(recursive=True, force=True)
    writing = steps.begin("write", lambda: out.write(1), "select source_id, target_id")
    steps.begin("delete", first.delete, END)
    if holds:
        end_all(steps)
        assert not first.exists()
    else:
        with pytest.raises(AssertionError, match="deadlock"):
            steps.go_on(writing, END)
