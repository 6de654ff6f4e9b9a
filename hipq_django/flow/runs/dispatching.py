"""Makes runs of wakes: one live run for each node, under the lock of its row.

A wake is deleted in the transaction in which its node is noted as woken and, unless it has a live
run, gets one. So for each unread message there is always a wake, a run that has not looked, or a
run that began before the last wake and leaves another when it ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import F, QuerySet

from hipq_django import events, transitions
from hipq_django.api.enqueueing import enqueue_unchecked
from hipq_django.conf.instances import InstanceSettings
from hipq_django.database import clock
from hipq_django.database.built_once import built_once
from hipq_django.database.isolation import Isolation
from hipq_django.database.locks import locked
from hipq_django.database.lookups import ids_in
from hipq_django.database.transactions import worker_transaction
from hipq_django.domain.drafts import BoundJob
from hipq_django.domain.serialization import error_of
from hipq_django.domain.states import State as JobState
from hipq_django.engines import engine_for
from hipq_django.flow.alarms import (
    Times,
    Wanted,
    earliest,
    of_new_run,
    of_waiting_run,
    wanted,
)
from hipq_django.flow.declaring import find_component
from hipq_django.flow.delivering import wake
from hipq_django.flow.exceptions import UnknownComponentError
from hipq_django.flow.lifecycle import runs_by_itself
from hipq_django.flow.logs import store
from hipq_django.flow.models import Node, Wake
from hipq_django.flow.publishing import announce_status
from hipq_django.flow.rate import take_run, turn_of
from hipq_django.flow.runs.doomed import delete_doomed
from hipq_django.flow.runs.failing import end_without_shutdown, fail_ended, fail_without_run
from hipq_django.flow.statements import (
    PageOfWakes,
    delete_messages,
    delete_wakes,
    lock_wakes,
    next_page_of_wakes,
    replaced_defaults,
    update_nodes,
)
from hipq_django.flow.values import Rest
from hipq_django.models import Job
from hipq_django.scheduler import companions

PAGE_SIZE = 1000
"""How many wakes are dispatched in one transaction. W13 of the benchmarks shows its effect."""
SWEEP_SIZE = 500
"""How many nodes that a crash has left behind one sweep takes on."""
DEFAULTS_SWEPT = 20_000
"""How many replaced defaults one sweep deletes, so that a worker is not held up for long."""


@dataclass
class _Woken:
    """A node that has something to look at."""

    node: Any
    """Its locked row, with the name of its component."""
    wanted: Wanted
    job: Job | None


def dispatch(config: InstanceSettings, left_alone: Isolation[int] | None = None) -> int:
    """Make runs of the wakes that are there; return how many rows were moved.

    It goes page by page: the wakes of nodes that somebody has locked hold nobody else up. Nodes
    that the calls before have left alone are passed over.
    """
    using, left_alone = config.database, left_alone or Isolation("flow", "node")
    moved, after = 0, 0
    while page := next_page_of_wakes(config.name, after, PAGE_SIZE, using):
        moved += _dispatch_page(page, config, left_alone, using)
        after = page.last
        if page.size < PAGE_SIZE:
            break
    return moved


def _dispatch_page(
    page: PageOfWakes, config: InstanceSettings, left_alone: Isolation[int], using: str
) -> int:
    """Make runs of a page of wakes. A node that cannot have one is failed, or ended."""
    moved = left_alone.together(lambda: _dispatch(page, config, left_alone, using))
    if moved is not None:
        return moved
    rows = Wake.objects.using(using).filter(
        instance=config.name, pk__gt=page.after, pk__lte=page.last
    )
    nodes = set(rows.values_list("node_id", flat=True)) - left_alone.ids
    failed: list[int] = []

    def fail(node: int, error: Exception) -> None:
        events.error("node_not_run", "no run could be made of it", node=node, exception=error)
        with worker_transaction(using):
            failed.append(_fail_alone(node, page._replace(node=node), error_of(error), using))

    def dispatch_one(nodes: Sequence[int]) -> int:
        return _dispatch(page._replace(node=nodes[0]), config, left_alone, using)

    return sum(left_alone.move([pk], dispatch_one, fail) for pk in sorted(nodes)) + sum(failed)


def _fail_alone(pk: int, page: PageOfWakes, error: str, using: str) -> int:
    rows = Node.objects.using(using).filter(pk=pk, job_id=None)
    node = locked(rows.select_related("job_type"), skip_locked=True).first()
    now = clock.now(using)
    if node is not None and node.rest == Rest.TERMINATING:
        end_without_shutdown(node, error, using)
    elif node is not None and runs_by_itself(node.rest, node.job_type.name):
        fail_without_run(node, error, using, now)
    else:
        return 0
    wakes = lock_wakes(page, using)
    _keep_for_later([_Woken(node, wanted((due for *_, due in wakes), now), None)], using, now)
    delete_wakes([wake for wake, _, _ in wakes], using)
    return len(wakes)


def _dispatch(
    page: PageOfWakes, config: InstanceSettings, left_alone: Isolation[int], using: str
) -> int:
    # If a crash loses it the wakes are there again; a claim of its runs is durable with them.
    with worker_transaction(using, is_durable=False):
        deleted, woken = _dispatch_locked(lock_wakes(page, using), config, using)
    ended = [w.node.pk for w in woken if w.node.rest == Rest.TERMINATED]
    delete_doomed(ended, left_alone, using)
    return deleted


def _dispatch_locked(
    wakes: Sequence[tuple[int, int, datetime | None]], config: InstanceSettings, using: str
) -> tuple[int, list[_Woken]]:
    """Make runs of these wakes; return how many were deleted, and the nodes that were woken."""
    ids = {node for _, node, _ in wakes}
    got: dict[int, Any] = {row.pk: row for row in _locked_nodes(ids, using)}
    there = ids
    if len(got) < len(ids):
        rows = Node.objects.using(using).filter(ids_in("pk", ids))
        there = set(rows.values_list("pk", flat=True))
    done = {pk: (node, due) for pk, node, due in wakes if node in got or node not in there}
    now = clock.now(using)
    woken = _woken(got, done.values(), using, now)
    return _run(woken, {pk: node for pk, (node, _) in done.items()}, config, using, now), woken


NODE = (
    "id", "instance", "queue", "job_type", "rest", "paused", "job_id", "run_time", "alarm",
    "wakes", "rate_time", "job_options",
)  # fmt: skip
"""What the dispatcher needs of a node; Django reads the rest when it is asked for."""


@built_once
def _locked_nodes(ids: Sequence[int], using: str) -> QuerySet[Node]:
    """Return nodes with the names of their components."""
    rows = Node.objects.using(using).filter(ids_in("pk", ids)).order_by("pk").only(*NODE)
    return locked(rows.annotate(component=F("job_type__name")), skip_locked=True)


def _woken(
    nodes: Mapping[int, Any],
    wakes: Iterable[tuple[int, datetime | None]],
    using: str,
    now: datetime,
) -> list[_Woken]:
    """Return the nodes, each with when it is wanted."""
    times: dict[int, list[datetime | None]] = {}
    for node, due in wakes:
        times.setdefault(node, []).append(due)
    live = [node.job_id for node in nodes.values() if node.job_id]
    found = Job.objects.using(using).filter(ids_in("pk", live)) if live else ()
    jobs = {job.pk: job for job in found}
    return [
        _Woken(node, wanted(times[pk], now), jobs.get(node.job_id or 0))
        for pk, node in sorted(nodes.items())
    ]


def _run(
    woken: Sequence[_Woken],
    wakes: Mapping[int, int],
    config: InstanceSettings,
    using: str,
    now: datetime,
) -> int:
    """Give nodes a run that have none; bring alarms forward. Delete the wakes; return how many.

    `wakes` are the nodes by the ids of their wakes. Where somebody has locked the node's job, they
    have to stay.
    """
    able = [w for w in woken if _may_run(w.node)]
    live = [w for w in able if w.job is not None and w.job.state != JobState.FINAL]
    busy = {w.node.pk for w in live}
    again = {w.node.pk for w in live if not _hasten(w, using, now)}
    fail_ended([w.node for w in woken if w.job is not None and w.job.is_final], using, now)
    idle = [w for w in able if w.node.job_id is None and _may_run(w.node)]
    deleted = [pk for pk, node in wakes.items() if node not in again]
    running = _enqueue(idle, deleted, config, using, now)
    left = [w for w in woken if w.node.pk not in busy and w.node.pk not in running]
    _keep_for_later(left, using, now)
    others = {w.node.pk for w in woken if w.wanted.now} - running
    if others:
        rows = Node.objects.using(using).filter(ids_in("pk", others))
        rows.update(wakes=F("wakes") + 1)
    return len(deleted)


def _keep_for_later(held: Sequence[_Woken], using: str, now: datetime) -> None:
    """Keep the moments of nodes that do not run as they are: paused, or failed."""
    for w in held:
        if w.wanted.later is None or w.node.rest in (Rest.TERMINATING, Rest.TERMINATED):
            continue
        alarm = earliest((w.wanted.later, w.node.alarm), now)
        Node.objects.using(using).filter(pk=w.node.pk).update(alarm=alarm)


def _may_run(node: Any) -> bool:
    if node.paused and node.rest != Rest.TERMINATING:
        return False
    return node.rest == Rest.TERMINATING or runs_by_itself(node.rest, node.component)


def _hasten(woken: _Woken, using: str, now: datetime) -> bool:
    """Bring the run of a node forward that was for a later moment, which is kept.

    Return False if its job is locked: whoever claims it will look, but anybody else may have.
    """
    node, job = woken.node, woken.job
    assert job is not None  # noqa: S101 - for type checkers
    if node.rest == Rest.TERMINATING and not job.has_pending_answer:
        return job.state == JobState.RUNNING or _make_way(node, job, using, now)
    before = Times(node.run_time, node.alarm)
    if job.state != JobState.INITIAL or node.run_time is None or node.run_time <= now:
        _run_once_more(woken, using, now)
        return True
    times = of_waiting_run(woken.wanted, before, now)
    if times == before:
        return True
    waiting = _locked_waiting(job, using)
    if waiting is None:
        return False
    Node.objects.using(using).filter(pk=node.pk).update(**times._asdict())
    moment = max(times.run_time or now, turn_of(node.rate_time, now))
    transitions.bring_forward(waiting, moment, now)
    engine_for(using).wake_workers(node.instance, {waiting.queue_id})
    return True


def _run_once_more(woken: _Woken, using: str, now: datetime) -> None:
    """Let a node that has a run have another one after that, when it is wanted.

    One whose alarm has passed while its run executes has it when that ends, as for what comes now.
    """
    node, when = woken.node, woken.wanted
    if when.later is None:
        return
    if node.alarm is not None and node.alarm <= now:
        woken.wanted = when._replace(now=True)
    alarm = earliest((when.later, node.alarm), now)
    Node.objects.using(using).filter(pk=node.pk).update(alarm=alarm)


def _make_way(node: Any, job: Job, using: str, now: datetime) -> bool:
    """Let the waiting run of a node that shuts down come now; it does nothing any more.

    Return False where it is locked, or nobody has decided yet when it is tried again.
    """
    waiting = _locked_waiting(job, using)
    if waiting is None:
        return False
    transitions.run_now([waiting], now, using)
    engine_for(using).wake_workers(node.instance, {waiting.queue_id})
    return True


def _locked_waiting(job: Job, using: str) -> Job | None:
    """Return a job under its lock if it still waits; None also if somebody else has locked it."""
    rows = Job.objects.using(using).waiting().filter(pk=job.pk)
    found: Job | None = locked(rows.select_related("queue", "job_type"), skip_locked=True).first()
    return found


def _enqueue(
    idle: Sequence[_Woken],
    wakes: Sequence[int],
    config: InstanceSettings,
    using: str,
    now: datetime,
) -> set[int]:
    """Make the runs, and note that their nodes were woken; return which those are.

    Delete these wakes, too.
    """
    runs: list[tuple[Any, BoundJob]] = []
    for w in idle:
        new = _new_job(w, using, now)
        if new is not None:
            runs.append((w.node, new))
    if not runs:
        delete_wakes(wakes, using)
        return set()
    jobs = enqueue_unchecked([new for _, new in runs], instance=config.name)
    for (node, _), job in zip(runs, jobs, strict=True):
        node.job_id, node.lock_attempt = job.pk, 0
        node.wakes += 1
    nodes = [node for node, _ in runs]
    _follow_queues(nodes, jobs, using)
    queues = {job.queue.name for job in jobs}
    transaction.on_commit(partial(companions.put_first, queues), using=using)
    names = ("id", "wakes", "job_id", "run_time", "alarm", "rate_time", "lock_attempt")
    rows = [{name: getattr(node, name) for name in names} for node in nodes]
    if update_nodes(rows, using, wakes):
        queued = [(n, "queued") for n in nodes if n.rest != Rest.TERMINATING]
        announce_status(queued, using, skip_locked=True)
    return {node.pk for node in nodes}


def _follow_queues(nodes: Sequence[Any], jobs: Sequence[Job], using: str) -> None:
    """Note the queues of nodes whose component has another one in this release."""
    moved: dict[int, list[int]] = {}
    for node, job in zip(nodes, jobs, strict=True):
        if node.queue_id != job.queue_id:
            moved.setdefault(job.queue_id, []).append(node.pk)
    for queue, ids in moved.items():
        Node.objects.using(using).filter(ids_in("pk", ids)).update(queue=queue)


def _new_job(woken: _Woken, using: str, now: datetime) -> BoundJob | None:
    """Return the job of a run, or None where the node runs too often and is terminated for it."""
    node = woken.node
    shuts_down = node.rest == Rest.TERMINATING
    if shuts_down:
        node.run_time = None
    else:
        node.run_time, node.alarm = of_new_run(woken.wanted, node.alarm, now)
    at = now if shuts_down else _turn(node, node.run_time or now, now)
    if at is None:
        _run_away(node, using, now)
        return None
    if node.run_time is not None and at > node.run_time:
        node.run_time = None  # it waits for its turn, which nothing brings forward
    options = {**node.job_options}
    data = {**options.pop("data", {}), "node": node.pk, "shutdown": True}
    if not shuts_down:
        del data["shutdown"]
    new = BoundJob(node.component, data, **options)
    new.scheduled_run_time = None if at <= now else at
    return new


SAY_AGAIN_SECONDS = 60.0
"""How often a process logs that a node is slowed: it may be for each of its runs."""

MOST_REMEMBERED = 10_000

_said_slowed: dict[int, float] = {}
"""Until when the log need not hear of a node again, by the steady clock."""


def _turn(node: Any, wanted: datetime, now: datetime) -> datetime | None:
    """Return when the node may run that is to run then; None if it must not run so often."""
    try:
        declared = find_component(node.instance, node.component)
    except UnknownComponentError:  # a worker that knows it will take the job
        return wanted
    turn, node.rate_time = take_run(node.rate_time, declared.runs_per_minute, now)
    if turn <= wanted:
        return wanted
    if declared.runaway == "terminate":
        return None
    moment = clock.steady()
    if moment >= _said_slowed.get(node.pk, 0.0):
        if len(_said_slowed) >= MOST_REMEMBERED:
            _said_slowed.clear()
        _said_slowed[node.pk] = moment + SAY_AGAIN_SECONDS
        events.warning(
            "node_slowed", "it runs more often than runs_per_minute", node=node.pk,
            component=node.component, runs_per_minute=declared.runs_per_minute,
        )  # fmt: skip
    return turn


def _run_away(node: Node, using: str, now: datetime) -> None:
    text = "terminated because it ran more often than runs_per_minute"
    entry = {"error": text, "node": node.pk}
    store([(node.pk, entry)], node.instance, using, skip_locked=True)
    Node.objects.using(using).filter(pk=node.pk).update(rest=Rest.TERMINATING)
    announce_status([(node, Rest.TERMINATING)], using, skip_locked=True)
    wake([node.pk], node.instance, using, now)


# Runs that have ended otherwise than by their own end


def wake_ended(ids: Collection[int], using: str) -> None:
    """Wake the nodes of jobs that end in this transaction; no node is locked, and none waits."""
    nodes = Node.objects.using(using).filter(ids_in("job_id", ids), job_id__isnull=False)
    own: dict[str, list[int]] = {}
    for instance, pk in nodes.values_list("instance", "pk"):
        own.setdefault(instance, []).append(pk)
    for instance, found in own.items():
        wake(found, instance, using, clock.now(using))


# What a crash has left


def sweep(config: InstanceSettings, left_alone: Isolation[int] | None = None) -> int:
    """Look after nodes whose run has ended in another way than by its own end.

    Its job was pruned, or an older release has ended it. And after doomed trees.
    """
    using, left_alone = config.database, left_alone or Isolation("flow", "node")
    nodes = Node.objects.using(using).filter(instance=config.name, job_id__isnull=False)
    jobs = (
        Job.objects.using(using).filter(pk__in=nodes.values("job_id")).exclude(state=JobState.FINAL)
    )
    left = nodes.exclude(job_id__in=jobs.values("pk")).order_by("pk")
    ids = list(left.values_list("pk", flat=True)[:SWEEP_SIZE])
    doomed = Node.objects.using(using).filter(instance=config.name, doomed=True)
    ended = doomed.filter(rest=Rest.TERMINATED).values_list("pk", flat=True)[:SWEEP_SIZE]
    delete_doomed(list(ended), left_alone, using)
    return left_alone.move(ids, partial(_fail_ended, using=using))


def sweep_defaults(config: InstanceSettings) -> int:
    """Delete messages that were to be defaults until newer ones came; return how many.

    A run deletes those of its own ports; those of out-ports, and of nodes that do not run, would
    pile up. They are not deleted where the newer ones are written: the rows would stay locked for
    as long as that transaction is open, and the end of a run would wait for it.
    """
    old = replaced_defaults(DEFAULTS_SWEPT, config.database)
    with worker_transaction(config.database, is_durable=False):
        delete_messages(old, config.database)
    return len(old)


def _fail_ended(ids: Sequence[int], using: str) -> int:
    """Clear the runs of nodes, but of those that somebody has locked."""
    with worker_transaction(using):
        rows = Node.objects.using(using).filter(pk__in=ids).select_related("job_type")
        rows = rows.order_by("pk")
        return fail_ended(list(locked(rows, skip_locked=True)), using, clock.now(using))
