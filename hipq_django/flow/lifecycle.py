"""Runs, terminates, pauses and locks nodes: what an operator, a parent or the node itself asks."""

from __future__ import annotations

import random
import time
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from hipq_django import transitions
from hipq_django.answers.cancelling import cancel_locked
from hipq_django.database import clock
from hipq_django.database.locks import locked
from hipq_django.database.lookups import ids_in
from hipq_django.database.transactions import write_transaction
from hipq_django.domain.states import State as JobState
from hipq_django.domain.validation import aware_moment, checked_number
from hipq_django.engines import engine_for
from hipq_django.flow.delivering import wake
from hipq_django.flow.exceptions import FlowError
from hipq_django.flow.family import tree_of
from hipq_django.flow.library.graph import GRAPH
from hipq_django.flow.models import Node
from hipq_django.flow.models.node import deleted
from hipq_django.flow.publishing import announce_status
from hipq_django.flow.values import RUNS_BY_ITSELF, Rest
from hipq_django.models import Job

MAX_SECONDS = 86_400 * 3_650


def run(
    node: Node,
    *,
    parent: bool = False,
    force: bool = False,
    at: datetime | float | None = None,
    wait: float | None = None,
) -> Node | None:
    """Let a node, or its parent, run; return it, or None where it does not run."""
    using = node.using
    with write_transaction(using):
        wanted = cast("Node | None", node.parent) if parent else node
        if wanted is None:
            return None
        row = locked_node(wanted)
        if not runs_by_itself(row.rest, row.job_type.name):
            if not force:
                return None
            row.rest, row.doomed = Rest.COMPLETED, False
            Node.objects.using(using).filter(pk=row.pk).update(rest=row.rest, doomed=False)
            if row.parent_id is not None:  # to which its end will show no change
                wake([row.parent_id], row.instance, using, clock.now(using))
        run_row(row, at=moment_of(at, wait, clock.now(using)))
    return row


def may_run(node: Node) -> bool:
    """Return whether a node runs without force, as it is now."""
    row = Node.objects.using(node.using).select_related("job_type").row_of(node).first()
    if row is None:
        raise deleted(node)
    return runs_by_itself(row.rest, row.job_type.name)


def runs_by_itself(rest: str, component: str) -> bool:
    """Whether a node runs without force; a failed graph does, to tell how its children are now."""
    return rest in RUNS_BY_ITSELF or (rest == Rest.FAILED and component == GRAPH)


def run_row(row: Node, at: datetime | float | None = None) -> None:
    """Wake a node that may run, whose row is locked or new."""
    now = clock.now(row.using)
    due = moment_of(at, None, now)
    wake([row.pk], row.instance, row.using, now, due if due and due > now else None)


def moment_of(
    at: datetime | float | None, wait: float | timedelta | None, now: datetime
) -> datetime | None:
    """Return when to run: at a moment, a number of seconds since 1970, or after some seconds."""
    if at is not None and wait is not None:
        raise FlowError(f"run: at={at!r:.100}, wait={wait!r:.100}: give one of them.")
    try:
        if wait is not None:
            seconds = wait.total_seconds() if isinstance(wait, timedelta) else wait
            return now + timedelta(seconds=checked_number("wait", seconds, 0, MAX_SECONDS))
        if isinstance(at, int | float) and not isinstance(at, bool):
            return datetime.fromtimestamp(at, UTC)
        return None if at is None else aware_moment("at", at)
    except (ValueError, OverflowError, OSError) as error:  # no moment at all
        raise FlowError(f"run: at={at!r:.100}, wait={wait!r:.100}: {error}") from error


def locked_node(node: Node) -> Node:
    """Return the row of a node under its lock; raise `NodeDeletedError` where it is gone."""
    row: Node | None = locked(Node.objects.using(node.using).row_of(node)).first()
    if row is None:
        raise deleted(node)
    return row


# Terminate


def terminate(
    node: Node, *, recursive: bool = False, delete: bool = False, force: bool = False
) -> Node:
    """Let nodes shut down; a run that executes ends first, unless `force` is given."""
    using = node.using
    with write_transaction(using):
        rows = _locked_tree(node) if recursive or delete else [locked_node(node)]
        if delete:
            Node.objects.using(using).filter(pk=node.pk).update(doomed=True)
        alive = [row for row in rows if row.rest != Rest.TERMINATED]
        if force:
            _end_without_code(alive, using)
        else:
            _let_shut_down(alive, using)
        if not alive and delete:
            wake([node.pk], node.instance, using, clock.now(using))
    return node


def _locked_tree(node: Node) -> list[Node]:
    """Return the rows of a node and all below it under their locks; raise `NodeDeletedError`.

    While somebody is waited for, a child may be spawned.
    """
    found: dict[int, Node] = {}
    while new := [pk for pk in tree_of(node) if pk not in found]:
        rows = Node.objects.using(node.using).filter(ids_in("pk", new)).order_by("pk")
        found |= {row.pk: row for row in locked(rows.select_related("job_type"))}
    return list(found.values())


def _let_shut_down(rows: list[Node], using: str) -> None:
    changed = [row for row in rows if row.rest != Rest.TERMINATING]
    ids = [row.pk for row in changed]
    Node.objects.using(using).filter(ids_in("pk", ids)).update(rest=Rest.TERMINATING)
    if rows:  # of one instance, as the nodes of a tree are
        wake([row.pk for row in rows], rows[0].instance, using, clock.now(using))
    announce_status([(row, Rest.TERMINATING) for row in changed], using)


def _end_without_code(rows: list[Node], using: str) -> None:
    """End nodes, and cancel their live runs, also those that wait for an answer."""
    live = Job.objects.using(using).filter(ids_in("pk", [row.job_id for row in rows if row.job_id]))
    jobs = list(locked(live.live().select_related("queue", "job_type").order_by("pk")))
    cancel_locked(jobs, "The node was terminated by force", using)
    end_rows(rows, using)


def end_rows(rows: list[Node], using: str, *, skip_locked: bool = False) -> None:
    """Note that locked nodes of one instance are terminated, and tell their parents.

    With `skip_locked` raise `LockedPortError` instead of waiting for who hears of it.
    """
    ids = [row.pk for row in rows]
    Node.objects.using(using).filter(ids_in("pk", ids)).update(
        rest=Rest.TERMINATED, job_id=None, run_time=None, alarm=None, pending={}
    )
    for row in rows:
        row.rest, row.job_id = Rest.TERMINATED, None
    announce_status([(row, Rest.TERMINATED) for row in rows], using, skip_locked=skip_locked)
    if rows:
        parents = [row.parent_id for row in rows if row.parent_id is not None]
        wake([*ids, *parents], rows[0].instance, using, clock.now(using))


# Pause, resume, lock


def pause(node: Node) -> None:
    """Let a node not run until it is resumed."""
    _update(node, paused=True)


def resume(node: Node) -> None:
    """Let a node run again, which looks at what came meanwhile."""
    with write_transaction(node.using):
        row = locked_node(node)
        Node.objects.using(node.using).filter(pk=node.pk).update(paused=False)
        if row.rest == Rest.TERMINATING or runs_by_itself(row.rest, row.job_type.name):
            wake([row.pk], row.instance, row.using, clock.now(row.using))


def _update(node: Node, **values: Any) -> None:
    if not Node.objects.using(node.using).row_of(node).update(**values):
        raise deleted(node)


def lock(node: Node, ttl: float, *, retries: int = 3, retry_delay: float = 0.2) -> str | None:
    """Keep a node from running for some seconds; return the token, or None."""
    checked_number("retry_delay", retry_delay, 0, MAX_SECONDS)
    for left in reversed(range(max(1, retries))):
        token = _try_to_lock(node, ttl)
        if token is not None or not left:
            return token
        time.sleep(random.uniform(0, retry_delay))  # noqa: S311 - no secret
    return None


def _try_to_lock(node: Node, ttl: float) -> str | None:
    using = node.using
    with write_transaction(using):
        row, now = locked_node(node), clock.now(using)
        until = now + timedelta(seconds=checked_number("ttl", ttl, 0, MAX_SECONDS))
        job = locked(Job.objects.using(using).filter(pk=row.job_id or 0)).first()
        runs = job is not None and job.state in (JobState.RUNNING, JobState.ERROR)
        if runs or (row.lock_until is not None and row.lock_until > now):
            return None
        token = str(uuid.uuid4())
        _update(node, lock_token=token, lock_until=until)
    return token


def refresh_lock(node: Node, ttl: float) -> bool:
    """Let a lock last for some seconds from now; return whether there is one."""
    now = clock.now(node.using)
    until = now + timedelta(seconds=checked_number("ttl", ttl, 0, MAX_SECONDS))
    rows = Node.objects.using(node.using).row_of(node)
    if rows.filter(lock_until__gt=now).update(lock_until=until):
        return True
    if not rows.exists():
        raise deleted(node)
    return False


def unlock(node: Node, token: str) -> bool:
    """Give a lock back; return whether this was its token.

    A run that it has put back comes now, or when its time windows let it.
    """
    using = node.using
    with write_transaction(using):
        rows = Node.objects.using(using).row_of(node).exclude(lock_token="")
        if not rows.filter(lock_token=token).update(lock_token="", lock_until=None):
            if not node.exists():
                raise deleted(node)
            return False
        row = locked_node(node)
        waiting = Job.objects.using(using).waiting().filter(attempt__gt=0)
        put_back = waiting.filter(pk=row.job_id or 0, attempt=row.lock_attempt)
        now = clock.now(using)
        for job in locked(put_back.select_related("queue", "job_type")):
            transitions.bring_forward(job, now, now)
            engine_for(using).wake_workers(row.instance, {job.queue_id})
    return True
