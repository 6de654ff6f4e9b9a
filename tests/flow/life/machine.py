"""What writers, workers, operators, partners, time and crashes do to nodes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django.db import transaction
from django.utils import timezone
from hypothesis import strategies as st

import hipq_django as hipq
from hipq_django import flow
from hipq_django.domain.states import NONE, Phase
from hipq_django.exceptions import HipqError
from hipq_django.flow.admin.forms import fingerprint
from hipq_django.flow.admin.message_pages import drop_message
from hipq_django.flow.models import Message
from hipq_django.flow.runs import dispatching
from hipq_django.maintenance import recovery
from hipq_django.models import Job
from tests.flow.invariants import is_waiting
from tests.flow.life.life import A_LONG_TIME, GRAPH, NODES, SHAPES, Life, Reader, move
from tests.flow.life.scripts import REQUEST_ENDINGS, RESPONSE_ENDINGS, Ending, hand_on
from tests.flow.life.worker import SteppedFlowWorker
from tests.job_life.actors import END, Until
from tests.job_life.life import beat
from tests.job_life.moves import PICKS, SEATS, UNTIL, picked
from tests.noon import MONDAY_NOON

REFUSALS = (flow.FlowError, HipqError)
MAX_NODES = 9
MAX_UNREAD = 12


class Writers(Life):
    """Those who write to ports and read from them, and partners that answer."""

    @move(5, pick=PICKS, how_many=st.integers(1, 3), is_undone=st.booleans(), until=UNTIL)
    def write(self, pick: int, how_many: int, is_undone: bool, until: Until) -> None:
        entries = [*sorted(self.before.nodes)[:2], *sorted(self._nodes_of_graph())[:2]]
        node = flow.find(picked(entries, pick)) if entries else None
        if node is None or len(self.before.messages) > MAX_UNREAD:
            return
        batch = [next(self.numbers) for _ in range(how_many)]
        self.batches.append(batch)

        def act() -> bool:
            with transaction.atomic():
                for number in batch:
                    node.inputs["item"].write(number)
                if is_undone:
                    transaction.set_rollback(True)
            return not is_undone

        step = self.steps.begin("write", act, until, refusals=REFUSALS)
        self.writing[step] = batch

    def _nodes_of_graph(self) -> list[int]:
        return [pk for pk, node in self.before.nodes.items() if node["name"] in ("zero", "one")]

    @move(2, pick=PICKS, direction=st.sampled_from(["inputs", "outputs"]), until=UNTIL)
    def read(self, pick: int, direction: str, until: Until) -> None:
        node = self.node(pick)
        name = "item" if direction == "inputs" else "out"
        found = {(p["node_id"], p["name"]): pk for pk, p in self.before.ports.items()}
        if node is None or (node.pk, name) not in found:
            return
        port = getattr(node, direction)[name]
        reader = Reader(found[node.pk, name])
        self.readers.append(reader)
        reader.step = self.steps.begin("read", port.read, until, refusals=REFUSALS)
        self.end_readers()

    @move(4, pick=PICKS, is_error=st.sampled_from([False, False, True]), until=UNTIL)
    def answer(self, pick: int, is_error: bool, until: Until) -> None:
        waiting = [run for run in self.before.runs.values() if run["job_key"] != NONE]
        if waiting:
            key = picked(waiting, pick)["job_key"]
            verb = hipq.fail if is_error else hipq.complete
            act = partial(verb, "t.scripted", key, "said")
            self.steps.begin("answer", act, until, refusals=REFUSALS)


class Operators(Life):
    """Those who look after the nodes."""

    @move(
        6,
        pick=PICKS,
        verb=st.sampled_from(
            [
                flow.Node.run,
                partial(flow.Node.run, force=True),
                partial(flow.Node.run, wait=30),
                flow.Node.pause,
                flow.Node.resume,
                flow.Node.resume,
                flow.Node.terminate,
                partial(flow.Node.terminate, force=True),
                partial(flow.Node.lock, ttl=20, retries=0),
            ]
        ),
        until=UNTIL,
    )
    def operate(self, pick: int, verb: Callable[[flow.Node], object], until: Until) -> None:
        if node := self.node(pick):
            self.steps.begin("operate", partial(verb, node), until, refusals=REFUSALS)

    @move(2, pick=PICKS, until=UNTIL)
    def cancel(self, pick: int, until: Until) -> None:
        if self.before.runs:
            job = Job.objects.get(pk=picked(sorted(self.before.runs), pick))
            self.steps.begin("cancel", partial(hipq.cancel, job), until, refusals=REFUSALS)

    @move(3, pick=PICKS, is_joined=st.booleans(), until=UNTIL)
    def join(self, pick: int, is_joined: bool, until: Until) -> None:
        """Each port leads to one other at most, so that each number lies in one place."""
        nodes = [flow.find(name) for name in NODES]
        source, target = picked([(nodes[0], nodes[1]), (nodes[1], nodes[2])], pick)
        if source is not None and target is not None:
            port = source.outputs["out"]
            verb = port.connect if is_joined else port.disconnect
            act = partial(verb, target.inputs["item"])
            self.steps.begin("join", act, until, refusals=REFUSALS)

    @move(pick=PICKS, is_forced=st.booleans(), until=UNTIL)
    def delete(self, pick: int, is_forced: bool, until: Until) -> None:
        """What is deleted is terminated first; another takes its place, and its name."""
        if len(self.before.nodes) >= MAX_NODES and (node := self.node(pick)):
            act = partial(node.terminate, delete=True, force=is_forced)
            self.steps.begin("delete", act, until, refusals=REFUSALS)
            return
        name = picked(NODES, pick)
        act = partial(flow.start, "t.scripted", alias=name, on_conflict="return")
        self.steps.begin("start", act, until, refusals=REFUSALS)

    @move(3, shape=st.sampled_from(SHAPES), until=UNTIL)
    def edit_graph(self, shape: dict[str, Any], until: Until) -> None:
        """Nodes come and go, and are joined, while they work."""
        graph = flow.find(GRAPH)
        act: Callable[[], object] = partial(flow.start, shape, alias=GRAPH, on_conflict="return")
        if graph is not None:
            act = partial(graph.apply, shape)
        self.steps.begin("edit graph", act, until, refusals=REFUSALS)

    @move(2, pick=PICKS, until=UNTIL)
    def drop(self, pick: int, until: Until) -> None:
        """Drop a message that nobody is about to read."""
        paused = {pk for pk, node in self.before.nodes.items() if node["paused"]}
        dropped = [row for row in self.before.messages.values() if row["node"] in paused]
        if not dropped:
            return
        message = Message.objects.get(pk=picked(dropped, pick)["id"])

        def act() -> int:
            drop_message(message, fingerprint(message.data))
            return int(message.data)

        reader = Reader(message.port_id)
        self.readers.append(reader)
        reader.step = self.steps.begin("drop", act, until, refusals=REFUSALS)
        self.end_readers()

    @move(2, pick=PICKS, other=PICKS, is_taken=st.booleans(), until=UNTIL)
    def adopt(self, pick: int, other: int, is_taken: bool, until: Until) -> None:
        """Families change; nobody becomes his own ancestor."""
        node, orphan = self.node(pick), self.node(other)
        if node is None or orphan is None:
            return
        act = partial(node.adopt, orphan, f"child-{other}")
        if not is_taken and node.children:
            act = partial(node.disown, picked(sorted(node.children), other))
        self.steps.begin("adopt", act, until, refusals=REFUSALS)


class Workers(Life):
    """Two at a time, those that are gone, and time."""

    @move(9, seat=SEATS, act=st.sampled_from(["run_pass", "run_pass", "save"]), until=UNTIL)
    def work(self, seat: int, act: str, until: Until) -> None:
        worker = self.workers[seat]
        self.schedule(worker, act, getattr(worker, act), until)

    @move(
        10,
        pick=PICKS,
        ending=st.sampled_from(REQUEST_ENDINGS),
        after=st.sampled_from(RESPONSE_ENDINGS),
        is_saved=st.booleans(),
        until=UNTIL,
    )
    def finish(
        self, pick: int, ending: Ending, after: Ending, is_saved: bool, until: Until
    ) -> None:
        """Run the code of one claim; also beside what the worker's scheduler does."""
        everybody = [*self.workers, *self.ghosts]
        hands = [(worker, claim) for worker in everybody for claim in worker.claims]
        if not hands:
            self.work(0, "run_pass", until)
            return
        worker, claim = picked(hands, pick)
        name = "finish_and_save" if is_saved else "finish"
        chosen = after if claim.phase is Phase.RESPONSE else ending
        self.schedule(worker, name, partial(getattr(worker, name), claim, chosen), until)

    @move(3, until=UNTIL)
    def dispatch(self, until: Until) -> None:
        """Somebody else makes runs, beside the workers."""
        self.steps.begin("dispatch", partial(dispatching.dispatch, self.config), until)

    @move(3, seat=SEATS, is_killed=st.booleans(), is_noticed=st.booleans(), until=UNTIL)
    def crash(self, seat: int, is_killed: bool, is_noticed: bool, until: Until) -> None:
        """One that was only stopped still has what it has, also its locks."""
        worker = self.workers[seat]
        beat([worker], MONDAY_NOON - A_LONG_TIME)  # type: ignore[list-item]  # it has a row
        if is_killed:
            self.steps.kill(worker)
        else:
            self.ghosts.append(worker)
        self.workers[seat] = SteppedFlowWorker()
        if is_noticed:
            self.keep_up(recovery.recover_lost, until)

    @move(2, pick=PICKS, until=UNTIL)
    def come_back(self, pick: int, until: Until) -> None:
        """A worker that was only stopped saves what it has."""
        if self.ghosts:
            worker = picked(self.ghosts, pick)
            self.schedule(worker, "save", worker.save, until)

    @move(2, pick=PICKS, is_committed=st.booleans())
    def break_connection(self, pick: int, is_committed: bool) -> None:
        """At once, or after the next commit, of which its client does not learn."""
        steps = self.steps.stopped if is_committed else list(self.steps)
        if steps:
            step = picked(steps, pick)
            (self.steps.lose_confirmation if is_committed else self.steps.cut)(step)

    @move(3, seconds=st.sampled_from([1, 6, 61]), is_noticed=st.booleans(), until=UNTIL)
    def pass_time(self, seconds: int, is_noticed: bool, until: Until) -> None:
        self.traveller.shift(seconds)
        beat(self.workers, timezone.now())  # type: ignore[arg-type]  # they have rows
        if is_noticed:
            self.keep_up(recovery.time_out_overdue, until)

    @move(until=UNTIL, duty=st.sampled_from([recovery.recover_lost, dispatching.sweep]))
    def keep_up(self, duty: Callable[..., int], until: Until) -> None:
        self.steps.begin("keep up", partial(duty, self.config), until)


class FlowLife(Writers, Operators, Workers):
    """Steps of all of them, which may overlap."""

    # Where several meet who seldom would by chance

    @move(4, seat=SEATS, until=UNTIL)
    def write_while_a_run_ends(self, seat: int, until: Until) -> None:
        """A run that has looked ends while data come, and what it leads to changes."""
        worker = self.workers[seat]
        self.schedule(worker, "run_pass", worker.run_pass, END)
        for claim in list(worker.claims):
            self.schedule(worker, "finish", partial(worker.finish, claim, hand_on), END)
        self.schedule(worker, "save", worker.save, until)
        self.write(seat, 2, is_undone=False, until=END)
        self.join(seat, is_joined=True, until=until)
        self.dispatch(until=END)

    @move(2, pick=PICKS, until=UNTIL)
    def answer_what_waits(self, pick: int, until: Until) -> None:
        """The answer and the end of its time come together."""
        waiting = [run for run in self.before.runs.values() if is_waiting(run)]
        if waiting:
            key = picked(waiting, pick)["job_key"]
            act = partial(hipq.complete, "t.scripted", key, "said")
            self.steps.begin("answer", act, until, refusals=REFUSALS)
            self.pass_time(61, is_noticed=True, until=until)
