"""The nodes and those who move them; what holds after every step, and that all data arrive."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count, pairwise
from typing import Any

import time_machine
from django.contrib.auth.models import Group
from django.core.management.color import no_style
from django.db import connection
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from hipq_django import flow
from hipq_django.conf.instances import get_instance
from hipq_django.flow import testing
from hipq_django.flow.models import Alias, Channel, Connection, LogEntry, Message, NodePort, Wake
from hipq_django.flow.runs import dispatching
from hipq_django.flow.values import Rest
from hipq_django.maintenance import recovery
from hipq_django.models import Answer, Attempt, Job, Link, Step as StepRow, Worker
from tests.flow.invariants import FlowSnapshot, check_flow
from tests.flow.life.scripts import booked, hand_on
from tests.flow.life.worker import SteppedFlowWorker
from tests.invariants import Snapshot, check_step
from tests.job_life.actors import END, Actors, Until
from tests.job_life.moves import PICKS, UNTIL, Moves, picked
from tests.job_life.steps import Step, Steps
from tests.noon import MONDAY_NOON
from tests.testapp.flows import SCRIPT

MOVES = Moves()
move = MOVES.move

ROUNDS = 50
NODES = ("source", "middle", "sink")
GRAPH = "graph"
TWO: dict[str, Any] = {name: {"component": "t.scripted"} for name in ("one", "two")}
THREE = TWO | {"zero": {"component": "t.scripted"}}
SHAPES: list[dict[str, Any]] = [
    {"nodes": TWO, "edges": ["one.out -> two.item"]},
    {"nodes": TWO},
    {"nodes": THREE, "edges": ["zero.out -> one.item", "one.out -> two.item"]},
    {"nodes": THREE, "edges": ["zero.out -> one.item"]},
]
"""What the graph may be made to be, while its nodes work."""
A_LONG_TIME = timedelta(hours=2)


@dataclass(eq=False)
class Reader:
    """Somebody who takes a number from a port, and may not learn whether he has it."""

    port: int
    vanished: set[int] = field(default_factory=set)
    """What has gone from the port since he began."""
    step: Step | None = None


class Life(RuleBasedStateMachine):
    """What all moves share."""

    def __init__(self, actors: Actors, traveller: time_machine.Traveller) -> None:
        super().__init__()
        empty_tables()
        traveller.move_to(MONDAY_NOON)
        self.actors, self.traveller = actors, traveller
        self.config = get_instance("default")
        self.steps = Steps(actors, lambda _: None, self._check)
        self.workers = [SteppedFlowWorker() for _ in range(2)]
        self.ghosts: list[SteppedFlowWorker] = []
        self.numbers = count()
        self.batches: list[list[int]] = []
        """What each writer wrote, in its order."""
        self.sure = set[int]()
        """Numbers whose writers know that they are written."""
        self.gone = set[int]()
        """Numbers that were taken, or went with their node."""
        self.shared = set[int]()
        """Numbers that somebody has taken whose run waits for an answer: that goes on with them."""
        self.writing: dict[Step, list[int]] = {}
        self.readers: list[Reader] = []
        self.before, self.core, self.commits = FlowSnapshot.take(), Snapshot.take(), actors.commits

    @initialize(are_joined=st.booleans(), numbers=st.integers(0, 3))
    def begin(self, are_joined: bool, numbers: int) -> None:
        """Three nodes, which may be joined already, and some data."""
        nodes = [flow.start("t.scripted", alias=name, run=False) for name in NODES]
        flow.start(SHAPES[0], alias=GRAPH, run=False)
        if are_joined:
            for source, target in pairwise(nodes):
                source.outputs["out"].connect(target.inputs["item"])
        batch = [next(self.numbers) for _ in range(numbers)]
        self.batches.append(batch)
        nodes[0].inputs["item"].write_many(batch)
        self.sure |= set(batch)
        self.check_rows()

    @move(5, pick=PICKS, until=UNTIL)
    def go_on(self, pick: int, until: Until) -> None:
        if stopped := self.steps.stopped:
            self.steps.go_on(picked(stopped, pick), until)

    @rule(chosen=st.deferred(lambda: st.sampled_from(MOVES).flatmap(lambda values: values)))
    def move(self, chosen: tuple[str, dict[str, Any]]) -> None:
        """One rule for all: Hypothesis would leave most rules out of each run, and little meets."""
        name, values = chosen
        getattr(self, name)(**values)

    def node(self, pick: int) -> flow.Node | None:
        """Return one of the nodes that there are."""
        there = sorted(self.before.nodes)
        return flow.find(picked(there, pick)) if there else None

    # What holds after every step

    def _check(self) -> None:
        for step in [step for step in self.writing if step.has_ended]:
            self.sure |= set(self.writing.pop(step) if step.result else ())
        if self.actors.commits != self.commits:
            self.check_rows()
        self.end_readers()

    def end_readers(self) -> None:
        """Let go of those who have ended: what they read was on their port, and is gone."""
        for reader in [r for r in self.readers if r.step is not None and r.step.has_ended]:
            self.readers.remove(reader)
            found = reader.step and reader.step.result
            assert found in (None, flow.NOTHING, *reader.vanished), f"{found} is still there"

    def check_rows(self) -> None:
        """Fail unless the rows are sound, and no number was lost or came back."""
        self.commits = self.actors.commits
        now, core = FlowSnapshot.take(), Snapshot.take()
        check_step(self.core, core)
        check_flow(now, self.batches)
        self._check_numbers(now)
        self.before, self.core = now, core

    def _check_numbers(self, now: FlowSnapshot) -> None:
        before, there = self.before.places, now.places
        taken_down = booked()
        assert len(taken_down) == len(set(taken_down)), f"booked twice: {taken_down}"
        for number in before.keys() - there.keys():
            if number in taken_down:
                self.gone.add(number)
                continue
            port = before[number]
            readers = [reader for reader in self.readers if reader.port == port]
            assert readers or port not in now.ports, f"number {number} of port {port} is lost"
            for reader in readers:
                reader.vanished.add(number)
            (self.shared if number in self.before.asked_about else self.gone).add(number)
        both = set(taken_down) & there.keys() - self.shared
        assert not both, f"booked, and still unread: {both}"
        back = self.gone & there.keys()
        assert not back, f"taken, and there again: {back}"
        lost = self.sure - there.keys() - self.gone - self.shared - set(taken_down)
        assert not lost, f"written, and never seen: {lost}"

    # The end

    def teardown(self) -> None:
        try:
            if sys.exc_info()[0] is None:
                self._end_all_steps()
                self._run_to_the_end()
        finally:
            self.actors.kill_all()
            SCRIPT.perform = None

    def _end_all_steps(self) -> None:
        for _ in range(ROUNDS):
            if not (stopped := self.steps.stopped):
                break
            self.steps.go_on(stopped[0], END)
        assert not list(self.steps), f"steps that never end: {list(self.steps)}"

    def _run_to_the_end(self) -> None:
        """Let time pass, with no one but fresh workers at work: all data arrive, all is at rest."""
        Worker.objects.update(heartbeat_time=MONDAY_NOON - A_LONG_TIME)
        self.workers = []
        for _ in range(ROUNDS):
            for pk, node in self.before.nodes.items():
                if node["paused"]:
                    flow.get(pk).resume()
                if node["rest"] == Rest.FAILED:
                    flow.get(pk).run(force=True)
            self._work_for_a_while()
            if not (self.before.runs or self.before.woken or self._failed()):
                break
        assert not self.before.runs, f"runs that never end: {self.before.runs}"
        assert not self.before.woken, f"nodes that never rest: {self.before.woken}"
        asleep = self.before.unread() - self._terminated()
        assert not asleep, f"data sleeps on nodes {asleep}"
        connection.check_constraints()

    def _failed(self) -> bool:
        return any(node["rest"] == Rest.FAILED for node in self.before.nodes.values())

    def _terminated(self) -> set[int]:
        return {pk for pk, node in self.before.nodes.items() if node["rest"] == Rest.TERMINATED}

    def _work_for_a_while(self) -> None:
        self.traveller.shift(timedelta(minutes=20))  # no run waits longer for its answer
        SCRIPT.perform = hand_on
        recovery.recover_lost(self.config)
        recovery.time_out_overdue(self.config)
        testing.drain(errors=False)
        dispatching.sweep(self.config)
        testing.drain(errors=False)
        self.check_rows()

    def schedule(
        self, worker: SteppedFlowWorker, name: str, act: Callable[[], Any], until: Until
    ) -> None:
        """Let a worker's scheduler do something, unless it is doing something."""
        if name not in BESIDE and any(
            step.owner is worker and step.name not in BESIDE for step in self.steps
        ):
            return
        self.steps.begin(name, act, until, owner=worker)


BESIDE = ("finish", "finish_and_save", "save")
"""What a worker does in other threads, beside its scheduler."""


def empty_tables() -> None:
    """Delete all rows, and let ids begin anew, so that runs repeat."""
    flows = (Wake, Message, Connection, Channel, LogEntry, Alias, NodePort, flow.Node)
    core = (Answer, Attempt, Link, StepRow, Job, Worker)
    tables = [model._meta.db_table for model in (*flows, *core, Group)]
    flush = connection.ops.sql_flush(no_style(), tables, reset_sequences=True, allow_cascade=True)
    connection.ops.execute_sql_flush(flush)
