"""Joins the runs of nodes to the queue: what its workers call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from django.db import Error

from hipq_django.conf.instances import InstanceSettings
from hipq_django.database import clock
from hipq_django.database.errors import is_cut_off, is_outage
from hipq_django.database.isolation import Isolation
from hipq_django.domain.parts import WAIT_FOR
from hipq_django.domain.redaction import as_shown, quoted
from hipq_django.domain.retries import WAIT, Snooze
from hipq_django.domain.states import Phase
from hipq_django.flow.base import Component, Suspended
from hipq_django.flow.contexts import context, inside_run, set_group
from hipq_django.flow.exceptions import FlowError
from hipq_django.flow.lifecycle import run as force, runs_by_itself
from hipq_django.flow.logs import log_entry
from hipq_django.flow.models import Node
from hipq_django.flow.runs import dispatching, ending
from hipq_django.flow.runs.loading import load
from hipq_django.flow.runs.run import Run
from hipq_django.flow.stages import sweep_stages
from hipq_django.flow.values import Rest
from hipq_django.models import Worker
from hipq_django.scheduler.companions import Persist
from hipq_django.transitions.values import Claim, Failed, Persisted, Result, Snoozed


class PutBack(Snooze):
    """Puts a run back, and says why: what it has read and done is undone."""

    def __init__(self, seconds: float, why: str) -> None:
        super().__init__(seconds)
        self._why = why

    def __str__(self) -> str:
        return self._why


class Runs:
    """The companion of components; see `hipq_django.scheduler.companions.Companion`."""

    def __init__(self) -> None:
        self._left_alone = Isolation[int]("flow", "node")

    def prepare(self, claims: Sequence[Claim]) -> None:
        """Read the nodes, ports and messages of a batch."""
        for run in load(claims):
            run.claim.extra = run

    def call(self, claim: Claim) -> Any:
        """Run the code of a node's component.

        To read its ports, a run needs the database: an outage is no failure of the code.
        """
        try:
            return self._call(claim)
        except Error as error:
            if _was_away(error, claim):
                raise PutBack(1, "the database was away") from error
            raise

    def _call(self, claim: Claim) -> Any:
        run: Run = claim.extra or load([claim])[0]
        claim.extra = run
        run.end = partial(_end_now, run)
        if run.is_stale:
            _run_requeued(run)
            return None
        if not _may_run(run):
            return None
        run.has_run = True
        node = run.node.pk
        with context(node=node, run=claim.id), set_group(), inside_run(node, run):
            return _call_and_learn(run)

    def write(
        self, results: Sequence[Result], worker: Worker, now: datetime, persist: Persist
    ) -> Iterator[Persisted]:
        """End runs."""
        for result in results:
            _mask(result)
        yield from ending.write(results, worker, now, persist)

    def instead_of(self, result: Result, error: Exception) -> Result:
        """Return what is written of a run that cannot be ended as it wanted."""
        return ending.instead_of(result, error)

    def stir(self, config: InstanceSettings) -> int:
        """Make runs of wakes."""
        return dispatching.dispatch(config, self._left_alone)

    def sweep(self, config: InstanceSettings) -> int:
        """Look after nodes whose run has ended in another way, jobs of stages, old defaults."""
        if not Node.objects.using(config.database).exists():
            return 0
        moved = dispatching.sweep(config, self._left_alone) + sweep_stages(config)
        return moved + dispatching.sweep_defaults(config)


def _mask(result: Result) -> None:
    """Let nothing be stored that a run has read: messages may be gone when somebody looks."""
    if isinstance(result, Failed):
        result.error = as_shown(result.claim, result.error)
        result.traceback = as_shown(result.claim, result.traceback)
    elif isinstance(result, Snoozed):
        result.reason = as_shown(result.claim, result.reason)


def _was_away(error: Error, claim: Claim) -> bool:
    """Whether the database was away. Before the code was called, all statements were ours."""
    run: Run | None = claim.extra
    return is_cut_off(error, run.using) if run and run.has_run else is_outage(error)


def _run_requeued(run: Run) -> None:
    """Force the node of a run that an operator has put into the queue once more.

    Not for a shutdown: a node that was ended on purpose stays as it is.
    """
    if run.claim.job.origin_id is not None and run.exists and not run.is_shutdown:
        force(run.node, force=True)


def _may_run(run: Run) -> bool:
    """Return whether the code may be called; raise `Snooze` while the node is locked."""
    node = run.node
    if run.claim.phase is Phase.RESPONSE and node.pending:
        is_able = True  # it has begun, and asked: what it goes on with would be asked once more
    elif run.is_shutdown:
        is_able = node.rest == Rest.TERMINATING
    else:
        is_able = not node.paused and runs_by_itself(node.rest, run.declared.name)
    if is_able:  # one that does nothing waits for no lock: it would hold its node's end up
        _wait_for_lock(run)
    return is_able


def _wait_for_lock(run: Run) -> None:
    until = run.node.lock_until
    left = (until - clock.now(run.using)).total_seconds() if until is not None else 0
    if left > 0:
        run.waits_for_lock = True
        raise PutBack(left, "the node is locked")


def _call_and_learn(run: Run) -> Any:
    """Call the code; what it raises shows no sensitive value that it has seen."""
    run.learn()  # what it is given, before it takes something out of that
    try:
        value = _call(run)
    except BaseException:
        run.mask_errors()
        raise
    if not run.claim.job.has_finished:
        run.log_data()
    return value


def _end_now(run: Run) -> None:
    run.log_data()
    run.leave_others()
    ending.end_now(run)


def _call(run: Run) -> Any:
    component = run.declared.component(run)
    try:
        if run.is_shutdown:
            return _shut_down(component, run)
        if run.claim.phase is Phase.RESPONSE:
            return _answered(component, run)
        if not run.has_started:
            _refuse_wait(component.awaited(component.startup()), run, "startup")
            run.doing.started = True
            run.mark()
        value = component.awaited(component.perform(*run.node.args))
    except Suspended:
        run.is_suspended = True
        return None
    return _checked(value, run)


def _answered(component: Component, run: Run) -> Any:
    value = _checked(component.awaited(component.on_response(run.claim.response)), run)
    if not run.claim.job.has_finished:
        run.leave_others()
    return value


def _shut_down(component: Component, run: Run) -> None:
    """Call `shutdown`; what it raises is logged, and the node is terminated all the same."""
    try:
        value = component.awaited(component.shutdown())
    except Suspended:
        return
    except Exception as error:
        if is_cut_off(error, run.using):
            raise
        run.forget()
        run.doing.logs.append(log_entry(error))
        return
    _refuse_wait(value, run, "shutdown")


def _refuse_wait(value: Any, run: Run, method: str) -> None:
    if value is WAIT or value is WAIT_FOR or isinstance(value, WAIT_FOR):
        raise FlowError(
            f"component {run.declared.name!r}: {method} returned {value!r}, but only perform may "
            "wait for an answer; return None."
        )


def _checked(value: Any, run: Run) -> Any:
    """Return what a run may return; raise `FlowError` for anything else."""
    name = run.declared.name
    if value is None:
        return None
    if run.claim.job.has_finished:
        raise FlowError(
            f"component {name!r} returned {quoted(value)}, but finishing has ended its run; return "
            "None, or leave out finishing."
        )
    if value is not WAIT:
        raise FlowError(
            f"component {name!r} returned {quoted(value)}; write results to out-ports, and return "
            "None, or WAIT for an answer."
        )
    if run.claim.phase is Phase.RESPONSE:
        raise FlowError(f"component {name!r}: on_response returned WAIT, but the answer has come.")
    if run.declared.response_handler is None:
        raise FlowError(
            f"component {name!r} returned WAIT, but it has no method on_response(response)."
        )
    return value
