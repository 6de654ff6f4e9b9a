"""Stages: nodes that make each message a job of some type, many at once, and hand on its end.

A job is enqueued in the transaction that takes its message, and noted in a row. When it has ended,
the node is woken: by the process that ended the job, or by the sweep. The run reads the states of
the noted jobs, and keeps no counter.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from django.db import InterfaceError, OperationalError, transaction
from django.db.models import Exists, OuterRef

from hipq_django.api.building import Builder
from hipq_django.api.enqueueing import enqueue_unchecked
from hipq_django.conf.instances import InstanceSettings
from hipq_django.database import clock
from hipq_django.database.errors import in_one_line
from hipq_django.database.isolation import write_or_refuse
from hipq_django.database.lookups import ids_in
from hipq_django.database.presence import Presence
from hipq_django.domain.drafts import BoundJob, NewJob
from hipq_django.domain.redaction import as_shown, without_values
from hipq_django.domain.serialization import error_of, storable_text
from hipq_django.domain.states import Outcome
from hipq_django.exceptions import HipqError, InvalidJobError
from hipq_django.flow.base import Component
from hipq_django.flow.contexts import context
from hipq_django.flow.declared_ports import In, Out
from hipq_django.flow.declaring import component
from hipq_django.flow.delivering import wake
from hipq_django.flow.exceptions import FlowError, InvalidPortError
from hipq_django.flow.models import Node, StagedJob
from hipq_django.flow.ports import Port
from hipq_django.flow.values import DEFAULT_LIMIT, MAX_LIMIT, RUNS_BY_ITSELF, STAGE
from hipq_django.job_types.registry import sensitive_fields
from hipq_django.models import Job
from hipq_django.models.catalog import get_job_type
from hipq_django.models.masking import shown

PAGE_SIZE = 1_000
"""How many stages one sweep wakes."""

AT_ONCE = 100
"""How many ends are read at once, with their messages and results."""


class Staged(NamedTuple):
    """A message that becomes a job."""

    job: BoundJob
    data: Any
    """The message, from which the job's data may differ: arguments are stored as they are read."""
    context: Mapping[str, Any]


class EndedJob(NamedTuple):
    """The end of a job, and what came in for it."""

    staged: StagedJob
    job: tuple[str, Any, Any] | None
    """Outcome, result and error; None if the job does not exist any more."""

    @property
    def message(self) -> tuple[str, dict[str, Any]]:
        """The out-port to which it goes, and the message."""
        said = {"data": self.staged.data, "job": self.staged.job_id}
        if self.job is None:
            text = f"job {self.staged.job_id} does not exist any more: its result is unknown"
            return "error", {**said, "error": text}
        outcome, result, error = self.job
        if outcome == Outcome.SUCCEEDED:
            return "out", {**said, "result": result}
        return "error", {**said, "error": error}


@component(STAGE, wake_parent="changes", runs_per_minute=60_000)
class Jobs(Component):
    """Make each message a job of a type, several at a time; hand on the ends as they come.

    Arguments: the job type; the field of the message that is the job's key, or null; how many jobs
    there are at most at a time. What ends well goes to `out`, anything else to `error`.
    """

    value, out, error = In(name="in"), Out(), Out()

    @classmethod
    def check_args(cls, args: Sequence[Any]) -> None:
        """Raise `FlowError` unless these are the arguments of a stage."""
        super().check_args(args)
        _check(*args)

    def perform(self, job_type: str, key: str | None = None, limit: int = DEFAULT_LIMIT) -> None:
        """Hand on what has ended, and enqueue what comes."""
        jobs, over = _jobs_of(self.node)
        turns = zip(self._run.turns(), self._handed_on(over), strict=False)
        ended = [pk for _, pk in turns]
        left = jobs - len(ended)
        new = list(self._taken(job_type, key, limit - left))
        if ended or new:
            self._run.note("stage", ended, new)
        has_room = left + len(new) < limit
        if len(ended) < len(over) or (has_room and self.inputs["in"].sink.has_messages()):
            self.run()
        if left + len(new):
            self.suspend()

    def _handed_on(self, over: Sequence[int]) -> Iterator[int]:
        """Hand on the ends of jobs, one after the other; yield the ids of their rows."""
        for end in _ends_of(self.node, over):
            port, message = end.message
            with context(**end.staged.context):
                _hand_on(self.outputs, port, message)
            yield end.staged.pk

    def _taken(self, job_type: str, key: str | None, most: int) -> Iterator[Staged]:
        """Take messages while there is room; what can be no job goes to `error`."""
        # The name was checked when the node was started: maybe only other processes declare it.
        builder = Builder(self.node.instance, get_job_type, verb=None)
        port, taken = self.inputs["in"], 0
        packets = (port.last for _ in port)  # its default, if it has one, is no message
        for _ in self._run.turns():
            packet = next(packets, None) if taken < most else None
            if packet is None:
                return
            try:
                new = _checked_job(job_type, packet.value, key, builder)
            except InvalidJobError as error:
                said = storable_text(as_shown(self._run, str(error)))
                _hand_on(self.outputs, "error", {"data": packet.value, "error": said})
                continue
            taken += 1
            kept = {k: v for k, v in packet.context.items() if k not in ("node", "run", "channel")}
            yield Staged(new, packet.value, kept)


def _hand_on(outputs: Mapping[str, Port], port: str, message: Mapping[str, Any]) -> None:
    """Write what has become of a message.

    What its port cannot hold stops no other message: it goes to `error` without its result,
    and without its data if need be.
    """
    try:
        outputs[port].write(message)
    except InvalidPortError as refused:
        _hand_on_less(outputs["error"], message, refused)


def _hand_on_less(port: Port, message: Mapping[str, Any], refused: InvalidPortError) -> None:
    less = {name: message[name] for name in ("data", "job") if name in message}
    kept = "result" if "result" in message else "error"
    at_job = f" Job {message['job']} has its {kept} until it is pruned." if "job" in message else ""
    less["error"] = f"{refused}{at_job}"
    try:
        port.write(less)
    except InvalidPortError:
        less.pop("data", None)
        port.write(less)


def _checked_job(job_type: str, value: Any, key: str | None, builder: Builder) -> BoundJob:
    """Return the job of a message, whose arguments are not checked any more.

    Raise `InvalidJobError` where it can be none, also if the project's code breaks that checks it.
    """
    new = NewJob(job_type, value, job_key=_key_of(value, key))
    try:
        built = builder.build(new)
    except (HipqError, InterfaceError, OperationalError):
        raise
    except Exception as error:
        raise InvalidJobError(error_of(error)) from error
    return BoundJob(job_type, built.job_data, job_key=new.job_key)


def _check(job_type: object, key: object = None, limit: object = DEFAULT_LIMIT) -> None:
    if not isinstance(job_type, str) or not isinstance(key, str | None):
        raise FlowError(
            f"{STAGE}: job type {job_type!r:.100} and key {key!r:.100}: give the name of a job "
            "type, and that of a field or null."
        )
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_LIMIT:
        raise FlowError(f"{STAGE}: limit={limit!r:.50}; give a number from 1 to {MAX_LIMIT:,}.")


def _key_of(value: Any, field: str | None) -> str | None:
    if field is None:
        return None
    key = value.get(field) if isinstance(value, dict) else None
    if isinstance(key, str | int) and not isinstance(key, bool) and str(key):
        return str(key)
    raise InvalidJobError(
        f"the message has no text or number under {field!r}, which is to be the key of its job."
    )


def _jobs_of(node: Node) -> tuple[int, list[int]]:
    """Return how many jobs a stage has, and the ids of the rows of those that have ended."""
    rows = StagedJob.objects.using(node.using).filter(node=node.pk).order_by("pk")
    noted = list(rows.values_list("pk", "job_id"))
    live = Job.objects.using(node.using).live().filter(ids_in("pk", {job for _, job in noted}))
    ids = set(live.values_list("pk", flat=True))
    return len(noted), [pk for pk, job in noted if job not in ids]


def _ends_of(node: Node, over: Sequence[int]) -> Iterator[EndedJob]:
    """Yield the ends of jobs, a few of which are read at once: they may be large."""
    for start in range(0, len(over), AT_ONCE):
        part = over[start : start + AT_ONCE]
        rows = list(StagedJob.objects.using(node.using).filter(ids_in("pk", part)).order_by("pk"))
        found = Job.objects.using(node.using).filter(ids_in("pk", [row.job_id for row in rows]))
        jobs = {job.pk: _end_of(job) for job in found.select_related("job_type").defer("job_data")}
        yield from (EndedJob(row, jobs.get(row.job_id)) for row in rows)


def _end_of(job: Job) -> tuple[str, Any, Any]:
    has_failed = job.outcome != Outcome.SUCCEEDED
    return job.outcome, job.result, shown(job, job.error) if has_failed else job.error


def stage(node: Node, ended: Sequence[int], staged: Sequence[Staged]) -> None:
    """Do what a run of a stage has noted: forget what has ended, and enqueue what came.

    A message whose job the database refuses goes to `error`; the node runs again, for the place
    that it leaves.
    """
    using = node.using
    StagedJob.objects.using(using).filter(ids_in("pk", ended), node=node.pk).delete()
    if not staged:
        return
    refused = _enqueue(node, staged)
    for given, error in refused:
        with context(**given.context):
            _hand_on(node.outputs, "error", {"data": given.data, "error": error})
    if refused:
        wake([node.pk], node.instance, using, clock.now(using))
    any_staged.note(using)


def _enqueue(node: Node, staged: Sequence[Staged]) -> list[tuple[Staged, str]]:
    """Enqueue jobs; return those that the database refuses, each with the error."""
    refused: list[tuple[Staged, str]] = []

    def enqueue(places: Sequence[int]) -> None:
        with transaction.atomic(using=node.using):
            _enqueue_together(node, [staged[n] for n in places])

    def refuse(place: int, error: Exception) -> None:
        refused.append((staged[place], _shown(error, staged[place], node.instance)))

    write_or_refuse(range(len(staged)), enqueue, refuse)
    return refused


def _shown(error: Exception, given: Staged, instance: str) -> str:
    """Return an error of the database, which may quote the row of the job, without its secrets."""
    own = get_job_type(instance, given.job.job_type).sensitive_fields
    fields, data = (*sensitive_fields(instance), *own), [given.data, given.job.job_data]
    return storable_text(in_one_line(error, lambda text: without_values(text, fields, data)))


def _enqueue_together(node: Node, staged: Sequence[Staged]) -> None:
    wanted = [given.job for given in staged]
    jobs = enqueue_unchecked(wanted, on_conflict="return", instance=node.instance)
    now = clock.now(node.using)
    StagedJob.objects.using(node.using).bulk_create(
        StagedJob(
            node_id=node.pk,
            job_id=job.pk,
            data=given.data,
            context=dict(given.context),
            create_time=now,
        )
        for given, job in zip(staged, jobs, strict=True)
    )


any_staged = Presence(lambda using: StagedJob.objects.using(using).exists())
"""Whether a stage has a job in a database."""


def wake_stages(ids: Collection[int], using: str) -> None:
    """Wake the stages that have enqueued these jobs, which have ended."""
    if any_staged(using):
        rows = StagedJob.objects.using(using).filter(ids_in("job_id", ids))
        _wake(rows.values_list("node_id", flat=True), using)


def _wake(nodes: Iterable[int], using: str) -> int:
    able = Node.objects.using(using).filter(pk__in=set(nodes), rest__in=RUNS_BY_ITSELF)
    pairs = list(able.filter(paused=False).values_list("instance", "pk"))
    for instance in {instance for instance, _ in pairs}:
        own = [pk for inst, pk in pairs if inst == instance]
        wake(own, instance, using, clock.now(using))
    return len(pairs)


def sweep_stages(config: InstanceSettings) -> int:
    """Wake stages whose jobs have ended, which nobody has told them; return how many."""
    using = config.database
    live = Job.objects.using(using).live().filter(pk=OuterRef("job_id"))
    rows = StagedJob.objects.using(using).filter(node__instance=config.name, node__job_id=None)
    over = rows.exclude(Exists(live)).values_list("node_id", flat=True)
    return _wake(over.distinct()[:PAGE_SIZE], using)
