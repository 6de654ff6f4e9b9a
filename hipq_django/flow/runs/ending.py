"""Ends runs: writes their jobs, and what they have done, in one transaction for a whole batch.

The job's compare-and-set decides: who loses it writes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from hipq_django import events, transitions
from hipq_django.api.finishing import LOCK_SECONDS
from hipq_django.database import clock
from hipq_django.database.built_once import built_once
from hipq_django.database.errors import LockedRowError
from hipq_django.database.locks import locked
from hipq_django.database.lookups import ids_in
from hipq_django.database.transactions import worker_transaction
from hipq_django.domain.retries import Snooze
from hipq_django.domain.states import Outcome, Phase, State as JobState
from hipq_django.exceptions import StaleAttemptError
from hipq_django.flow import delivering, logs
from hipq_django.flow.delivering import LockedPortError, wake
from hipq_django.flow.exceptions import UnknownPortError
from hipq_django.flow.family import graphs_among
from hipq_django.flow.lifecycle import end_rows, terminate
from hipq_django.flow.models import Message, Node, NodePort
from hipq_django.flow.ports import find_row
from hipq_django.flow.publishing import announce_status
from hipq_django.flow.runs import verbs
from hipq_django.flow.runs.failing import fail
from hipq_django.flow.runs.run import Run
from hipq_django.flow.runs.verbs import RELATIVE
from hipq_django.flow.statements import (
    delete_messages,
    observers_among,
    update_nodes,
)
from hipq_django.flow.values import Effects, PortName, Rest, Write
from hipq_django.models import Job, Worker
from hipq_django.models.base import no_error
from hipq_django.scheduler.companions import Persist
from hipq_django.transitions.values import (
    Failed,
    Persisted,
    Released,
    Result,
    Snoozed,
    Succeeded,
    Waits,
    WaitsFor,
    all_of,
    refused,
)

LOCK_PAUSE = 0.02
"""How long a run that ends itself waits before it tries again to get its locks, in seconds."""


class ConflictError(Exception):
    """Somebody else has taken a message that the run has read."""


@dataclass
class _Ended:
    """A run whose attempt has ended, with its node's row under its lock.

    What the run has done is only read here: if the transaction fails, it is written again.
    """

    result: Result
    run: Run
    node: Node
    is_final: bool
    has_succeeded: bool
    """What its job is now."""

    @property
    def counts(self) -> bool:
        """Whether what the run did counts at all."""
        return self.result is not self.run.instead


NODE = (
    "id", "instance", "queue", "job_type", "parent", "rest", "job_id", "alarm", "wakes", "runs",
    "state_values", "error", "ran_time", "lock_until", "create_time",
)  # fmt: skip
"""What the end of a run needs of its node; Django reads the rest when it is asked for."""


def write(
    results: Sequence[Result], worker: Worker, now: datetime, persist: Persist
) -> Iterator[Persisted]:
    """Write results and what their runs have done, in one transaction.

    A run that did something to other nodes, which others may be about to lock, has its own.
    """
    together = [result for result in results if not _is_ended_alone(result)]
    alone = [[result] for result in results if _is_ended_alone(result)]
    for part in (together, *alone) if together else alone:
        with worker_transaction(worker.using):
            persisted = _write(part, worker, now, persist)
        yield persisted


def _is_ended_alone(result: Result) -> bool:
    run: Run = result.claim.extra
    return bool(run.done.verbs or run.doing.verbs or run.wants_end)


def instead_of(result: Result, error: Exception) -> Result:
    """Return what is written of a run that cannot be ended as it wanted; nothing it did counts.

    If others have taken messages that it had read, it is put back, to read others. After its answer
    it cannot: the answer is processed, and the run ends without those messages.
    """
    run: Run = result.claim.extra
    if not isinstance(error, ConflictError):
        run.mask_errors()
        run.instead = refused(result, error)
        return run.instead
    reason = "another run or reader has taken a message that it had read"
    events.info("run_conflict", reason, row=result.claim)
    if result.claim.phase is Phase.RESPONSE:
        if not _leave_out_gone(run):
            raise LockedRowError
        return result
    run.instead = Snoozed(result.claim, 1, reason, run=True)
    return run.instead


def end_now(run: Run) -> None:
    """End a run by its own code, in the transaction that is open.

    Raise `StaleAttemptError` if the run is over, and `Snooze`, which puts it back, if others hold
    what it needs for five seconds, or have taken a message that it has read. Where it has taken its
    answer it ends without that message.
    """
    claim, using = run.claim, run.using
    worker = Worker.objects.using(using).get(pk=claim.snapshot.worker_id or 0)
    patience = time.monotonic() + LOCK_SECONDS
    while (persisted := _try_to_end(run, worker)).locked:
        if time.monotonic() > patience:
            raise Snooze(1)
        time.sleep(LOCK_PAUSE)
    if persisted.dropped or not Job.objects.using(using).final().filter(pk=claim.id).exists():
        raise StaleAttemptError(
            f"finishing: {claim.job}, the run of {run.node}, is over, or was answered "
            "meanwhile; what the block has written is undone. End the run."
        )


def _try_to_end(run: Run, worker: Worker) -> Persisted:
    result, using = Succeeded(run.claim, None), run.using
    try:
        with transaction.atomic(using=using):
            persisted = _write([result], worker, clock.now(using), transitions.persist)
            if persisted.locked:
                raise LockedPortError
            return persisted
    except LockedPortError:
        return Persisted([], [], [result])
    except ConflictError as error:
        if not _leave_out_gone(run):
            return Persisted([], [], [result])
        if run.claim.phase is Phase.REQUEST:
            raise Snooze(1) from error  # to read others
    return _try_to_end(run, worker)  # with an answer it goes on without those: nobody is waited for


def _leave_out_gone(run: Run) -> bool:
    """Let a run not have read messages that others have taken; return whether there are any.

    Else somebody has only locked one, and may leave it.
    """
    taken = run.everything().taken
    there = Message.objects.using(run.using).filter(ids_in("pk", taken))
    left = set(there.values_list("pk", flat=True))
    for effects in (run.done, run.doing):
        effects.taken = [pk for pk in effects.taken if pk in left]
    return len(left) < len(set(taken))


def _write(results: Sequence[Result], worker: Worker, now: datetime, persist: Persist) -> Persisted:
    using = worker.using
    ids = {pk for result in results for pk in _nodes_to_lock(result)}
    nodes = {row.pk: row for row in _locked_nodes(ids, using)}
    there = ids
    if len(nodes) < len(ids):
        rows = Node.objects.using(using).filter(ids_in("pk", ids))
        there = set(rows.values_list("pk", flat=True))
    later = [r for r in results if not _nodes_to_lock(r) & there <= nodes.keys()]
    persisted = all_of(persist([r for r in results if r not in later], worker, now))
    jobs = _ends_of(persisted, using)
    ended = [
        _Ended(r, r.claim.extra, nodes[_node_of(r)], *jobs[r.claim.id])
        for r in persisted.written
        if _node_of(r) in nodes and r.claim.id in jobs
    ]
    for end in ended:
        end.node.job_type = end.result.claim.snapshot.job_type
    _apply([e for e in ended if e.node.job_id == e.result.claim.id], using, now)
    return Persisted(
        persisted.written, persisted.dropped, [*persisted.locked, *later], persisted.decided
    )


def _ends_of(persisted: Persisted, using: str) -> dict[int, tuple[bool, bool]]:
    """Return of each job that was written whether it is final, and whether it has succeeded."""
    ends = dict.fromkeys(persisted.finished, (True, True))
    others = [r.claim.id for r in persisted.written if r.claim.id not in ends]
    if not others:
        return ends
    rows = Job.objects.using(using).filter(ids_in("pk", others))
    found = rows.values_list("pk", "state", "outcome")
    return ends | {
        pk: (state == JobState.FINAL, outcome == Outcome.SUCCEEDED) for pk, state, outcome in found
    }


@built_once
def _locked_nodes(ids: Sequence[int], using: str) -> QuerySet[Node]:
    rows = Node.objects.using(using).filter(ids_in("pk", ids)).order_by("pk")
    return locked(rows.only(*NODE), skip_locked=True)


def _node_of(result: Result) -> int:
    run: Run = result.claim.extra
    return run.node_id


def _nodes_to_lock(result: Result) -> set[int]:
    """Return the nodes that are locked together, so that who locks a tree is not waited for."""
    return {_node_of(result), *_relatives_of(result.claim.extra)}


def _relatives_of(run: Run) -> set[int]:
    verbs = (*run.done.verbs, *run.doing.verbs)
    return {args[0] for name, args, _ in verbs if name == RELATIVE}


def _apply(ended: Sequence[_Ended], using: str, now: datetime) -> None:
    applied: list[tuple[_Ended, Effects]] = []
    for end in ended:
        effects = _effects_of(end)
        if isinstance(end.result, Waits | WaitsFor):
            _keep_pending(end, using)
            changes = _Changes([], using, now)
            _go_on(end, changes)
            changes.wake()
        elif effects is not None:
            applied.append((end, effects))
    taken = [pk for _, effects in applied for pk in set(effects.taken)]
    if not delete_messages(taken, using):
        raise ConflictError
    _act(applied, using, now)
    _end_all(applied, using, now)


def _effects_of(end: _Ended) -> Effects | None:
    """Return what of a run counts; None if nothing has ended."""
    run = end.run
    if isinstance(end.result, Released):
        return None
    if not end.counts:
        return Effects()
    if isinstance(end.result, Succeeded) and not end.is_final:
        return None  # an answer overtook it, although it did not wait: the answer's run begins
    return run.everything() if isinstance(end.result, Succeeded) else run.done


def _keep_pending(end: _Ended, using: str) -> None:
    """Keep what a run has done that waits for its answer, and which wakes it knew of."""
    run = end.run
    pending = {"effects": run.everything().as_json(), "wakes": run.wakes_seen}
    values = {"pending": pending, "ran_time": _ran_time(end)}
    Node.objects.using(using).filter(pk=end.node.pk).update(**values)


def _ran_time(end: _Ended) -> datetime:
    return end.result.claim.snapshot.start_time


def _act(applied: Sequence[tuple[_Ended, Effects]], using: str, now: datetime) -> None:
    """Do in their order what the runs have done; what they have written is delivered together."""
    written: list[tuple[_Ended, list[Write]]] = []
    for end, effects in applied:
        written.append((end, []))
        for act in effects.acts:
            if isinstance(act, Write):
                written[-1][1].append(act)
                continue
            name, args, options = act
            if name not in verbs.CHANGE_NO_WAY:
                _deliver(written, using, now)
                written = [(end, [])]
            verbs.do(end.node, name, args, options)
    _deliver(written, using, now)


def _deliver(written: Iterable[tuple[_Ended, Iterable[Write]]], using: str, now: datetime) -> None:
    """Write what the runs have written and published."""
    items: dict[str, list[Write]] = {}
    for end, writes in written:
        items.setdefault(end.node.instance, []).extend(_items(end, writes, using))
    for instance, wanted in items.items():
        delivering.write(wanted, instance, using, now, skip_locked=True)


def _items(end: _Ended, writes: Iterable[Write], using: str) -> Iterator[Write]:
    before: PortName | int | str | None = None
    place: PortName | int | str = 0
    for write in writes:
        if write.place is not before:  # a run writes most to one port
            place = before = write.place
            if isinstance(before, PortName):
                place = _row(before, end, using).id
        how = write.as_default, write.notify, write.log
        yield Write(place, write.value, write.context, *how, write.text)


def _row(place: PortName, end: _Ended, using: str) -> NodePort:
    if place in end.run.rows:
        return end.run.rows[place]
    node = Node.objects.using(using).filter(pk=place.node).first()
    if node is None:
        raise UnknownPortError(f"{end.node} wrote to a port of node {place.node}, which is gone.")
    row = end.run.rows[place] = find_row(node, place.direction, place.name)
    return row


class _Changes:
    """What is written of many nodes together."""

    def __init__(self, nodes: Collection[Node], using: str, now: datetime) -> None:
        self._using = using
        self._now = now
        self._graphs = graphs_among({n.parent_id for n in nodes if n.parent_id}, using)
        """The parents that are graphs: these are woken only if something has changed."""
        self._observers = observers_among(
            [n.pk for n in nodes if n.parent_id and n.parent_id not in self._graphs], using
        )
        """Those whose parents are told of changes only: else they would hear of what they cause."""
        self._rows: list[dict[str, Any]] = []
        self._wakes: dict[str, set[int]] = {}
        self._statuses: list[tuple[Node, str]] = []

    def end_well(self, end: _Ended, values: dict[str, Any]) -> None:
        """Note a run that has ended well, and whom that concerns."""
        node, run = end.node, end.run
        before, alarm = node.rest, node.alarm
        if node.rest not in (Rest.TERMINATING, Rest.TERMINATED) and run.has_run:
            node.rest = run.rest or (Rest.SUSPENDED if run.is_suspended else Rest.COMPLETED)
        self._rows.append(
            {
                "id": node.pk,
                **values,
                "rest": node.rest,
                "error": no_error(),
                "pending": {},
                "runs": node.runs + run.has_run,
                "job_id": None,
                "run_time": None,
                "alarm": None,
            }
        )
        node.job_id = node.run_time = node.alarm = None
        if alarm is not None:
            due = alarm if alarm > self._now else None
            wake([node.pk], node.instance, self._using, self._now, due)
        self._note_wakes(end, before)

    def _note_wakes(self, end: _Ended, before: str) -> None:
        """Wake the node if there is more to look at, and its parent."""
        node, run = end.node, end.run
        woken = self._wakes.setdefault(node.instance, set())
        has_looked = run.has_run and node.wakes == run.wakes_seen
        looks_again = not has_looked or node.rest == Rest.TERMINATING
        if looks_again:
            woken.add(node.pk)
        if not (looks_again or run.again or run.wants_end):
            self._statuses.append((node, node.rest))
        if node.parent_id is None:
            return
        is_quiet = (
            run.declared.wake_parent == "changes"
            or node.parent_id in self._graphs
            or node.pk in self._observers
        )
        if not is_quiet or node.rest != before:
            woken.add(node.parent_id)

    def go_on(self, end: _Ended) -> None:
        """Wake a node for what its run asked for itself, also if it failed."""
        if end.node.rest in (Rest.FAILED, Rest.TERMINATED):
            return
        for moment in end.run.again:
            if moment is None or moment <= self._now:
                self._wakes.setdefault(end.node.instance, set()).add(end.node.pk)
            else:
                wake([end.node.pk], end.node.instance, self._using, self._now, moment)

    def write(self) -> None:
        """Write what has changed of the nodes."""
        if update_nodes(self._rows, self._using):
            announce_status(self._statuses, self._using, skip_locked=True)

    def wake(self) -> None:
        """Wake all whom it concerns."""
        for instance, nodes in self._wakes.items():
            wake(nodes, instance, self._using, self._now)


def _end_all(applied: Sequence[tuple[_Ended, Effects]], using: str, now: datetime) -> None:
    """Write what has changed of the nodes, and wake whom their ends concern."""
    changes, others = _Changes([end.node for end, _ in applied], using, now), []
    for end, effects in applied:
        values = _values(end, effects, now)
        _write_defaults(end, using)
        entries = [(end.node.pk, entry) for entry in effects.logs]
        logs.store(entries, end.node.instance, using, skip_locked=True)
        if not (end.is_final and end.has_succeeded):
            others.append((end, values))
        elif end.run.is_shutdown and end.run.has_run and end.node.rest == Rest.TERMINATING:
            Node.objects.using(using).filter(pk=end.node.pk).update(**values)
            end_rows([end.node], using, skip_locked=True)
        else:
            changes.end_well(end, values)
    changes.write()
    for end, values in others:
        _end_badly(end, values, using, now)
    for end, _ in applied:
        _go_on(end, changes)
    changes.wake()


def _values(end: _Ended, effects: Effects, now: datetime) -> dict[str, Any]:
    return {
        "state_values": effects.changed(end.node.state_values),
        "started": end.run.node.started or effects.started,
        "ran_time": _ran_time(end) if end.run.has_run else end.node.ran_time,
        "update_time": now,
    }


def _end_badly(end: _Ended, values: dict[str, Any], using: str, now: datetime) -> None:
    """Write what counts of a run that has failed or is put back."""
    node = end.node
    values["error"] = node.error = _messages_at_fault(end)
    if end.run.waits_for_lock:
        values["lock_attempt"] = end.result.claim.attempt
    if end.result.claim.phase is Phase.REQUEST:
        values["pending"] = {}
    Node.objects.using(using).filter(pk=node.pk).update(**values)
    if end.is_final:
        fail(node, _job_of(end, using), using, now)
    elif end.run.waits_for_lock and not (node.lock_until and node.lock_until > now):
        transitions.bring_forward(_job_of(end, using), now, now)  # it was given back meanwhile
    elif _only_delays_the_end(end):
        wake([node.pk], node.instance, using, now)


def _only_delays_the_end(end: _Ended) -> bool:
    """Whether another attempt would call no code any more, because the node is to shut down."""
    is_request = end.result.claim.phase is Phase.REQUEST
    return end.node.rest == Rest.TERMINATING and is_request and not end.run.is_shutdown


def _job_of(end: _Ended, using: str) -> Job:
    rows = Job.objects.using(using).select_related("queue", "job_type")
    return rows.get(pk=end.result.claim.id)


def _messages_at_fault(end: _Ended) -> Any:
    """Return the ids of the messages at which the last failed attempt raised, with its error.

    None are at fault where nothing counts, because what the run did before is refused.
    """
    if not isinstance(end.result, Failed):
        return end.node.error
    if not (end.counts and end.run.in_flight):
        return no_error()
    claim = end.result.claim
    return {"ids": end.run.in_flight, "error": end.result.error, "attempt": claim.attempt}


def _write_defaults(end: _Ended, using: str) -> None:
    """Let messages that became defaults be the defaults of their ports.

    Where somebody has locked one, or its port, it stays as it is, and a later run does that.
    """
    for pk, message in end.run.defaults.items():
        rows = NodePort.objects.using(using).filter(pk=pk)
        if not locked(rows.only("pk"), skip_locked=True):
            continue
        if not delete_messages([message.id], using):
            continue  # or somebody has removed it, or set another one
        older = Message.objects.using(using).filter(port=pk, as_default=True, pk__lt=message.id)
        delete_messages(list(older.values_list("pk", flat=True)), using)
        rows.update(has_default=True, value=message.data, value_context=message.context)


def _go_on(end: _Ended, changes: _Changes) -> None:
    """Do what the run asked for itself, also if it failed, or was refused."""
    if not (end.counts or isinstance(end.result, Failed)):
        return  # it is put back, and asks anew
    if end.run.wants_end:
        terminate(end.node, **end.run.wants_end)
    changes.go_on(end)
