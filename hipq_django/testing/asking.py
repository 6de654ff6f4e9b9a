"""What a test asks of jobs; a failure names those of the type, and what holds them back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple

from django.db import connections

from hipq_django import signals
from hipq_django.conf.rules import DEFAULT
from hipq_django.domain.states import WAITING, State
from hipq_django.exceptions import InvalidJobError, nearest_name
from hipq_django.job_types.registry import names_of
from hipq_django.models import Job
from hipq_django.models.job import JobQuerySet
from hipq_django.models.masking import shown
from hipq_django.sharding.map import shards
from hipq_django.testing.partners import Asked, check_known, named
from hipq_django.testing.running import call_what_waits_for_commit, told

MOST_SHOWN, MOST_EXPLAINED = 10, 5

_CHOICES = {
    field.name: [str(value) for value, _ in field.flatchoices]
    for field in Job._meta.concrete_fields
    if field.choices
}

ANY = object()
"""Any result."""


def enqueued(job_type: Asked, *, instance: str = DEFAULT, **values: Any) -> list[Job]:
    """Return the live jobs of a type with these field values, oldest first.

    The type is given by its name or as the task itself, here and elsewhere. Raise
    `InvalidJobTypeError` for a name that nothing declares.
    """
    name, place = named(job_type, instance)
    check_known("enqueued", name, place)
    return _enqueued(name, place, values)


def _enqueued(name: str, instance: str, values: dict[str, Any]) -> list[Job]:
    places = [_with(rows.live(), values).order_by("pk") for rows in _of_type(name, instance)]
    return [*chain.from_iterable(places)]


def assert_enqueued(job_type: Asked, *, instance: str = DEFAULT, **values: Any) -> Job:
    """Return the one live job of this type with these field values; fail unless there is one.

    `assert_enqueued("charge_card", job_key="order-42", priority=10)`
    """
    name, place = named(job_type, instance)
    found = _enqueued(name, place, values)
    if len(found) == 1:
        return found[0]
    count = f"{len(found)} jobs" if found else "no job"
    raise AssertionError(
        f"{count} enqueued with {_wanted(name, values)}; {_explained(found, name, place)}"
    )


def refute_enqueued(job_type: Asked, *, instance: str = DEFAULT, **values: Any) -> None:
    """Fail if there is a live job of this type with these field values."""
    if found := enqueued(job_type, instance=instance, **values):
        shown_jobs = "; ".join(map(_with_data, found[:MOST_SHOWN]))
        wanted = _wanted(found[0].job_type.name, values)
        raise AssertionError(f"enqueued with {wanted}: {shown_jobs}")


def assert_finished(job: Job, outcome: str = "succeeded", *, result: Any = ANY) -> Job:
    """Return the job as it is now; fail unless it is final with this outcome, and this result."""
    job.refresh_from_db()
    if not job.is_final or job.outcome != outcome:
        raise AssertionError(f"{job} ({job.job_type}) has not {outcome}: {told(job)}{_traces(job)}")
    if result is not ANY and job.result != result:
        raise AssertionError(
            f"{job} ({job.job_type}) has the result {job.result!r}, not {result!r}"
        )
    return job


def assert_waiting(job: Job) -> Job:
    """Return the job as it is now; fail unless it waits to run: initial or retry."""
    job.refresh_from_db()
    if job.state not in WAITING:
        raise AssertionError(f"{job} ({job.job_type}) does not wait to run: {told(job)}")
    return job


class Sent(NamedTuple):
    """A signal that was sent: its name, such as "job_failed", and its job."""

    name: str
    job: Job


@contextmanager
def captured_signals(*, instance: str = DEFAULT) -> Iterator[list[Sent]]:
    """Yield the signals of jobs that are sent, filled at the end of the block.

    Inside `TestCase`, which never commits, what waits for the commit is called at the end.
    """
    sent: list[Sent] = []
    names = ("job_enqueued", "job_started", "job_failed", "job_finished")
    receivers = {name: _receiver(name, sent) for name in names}
    for name, receiver in receivers.items():
        getattr(signals, name).connect(receiver, weak=False)
    aliases = [shard.alias for shard in shards(instance)]
    waiting = [entry[1] for alias in aliases for entry in connections[alias].run_on_commit]
    try:
        yield sent
        # Django's own `captureOnCommitCallbacks` leaves waiting what it has called.
        for alias in aliases:
            call_what_waits_for_commit(alias, besides=waiting)
    finally:
        for name, receiver in receivers.items():
            getattr(signals, name).disconnect(receiver)


def _receiver(name: str, sent: list[Sent]) -> Any:
    def receive(job: Job, **_: Any) -> None:
        sent.append(Sent(name, job))

    return receive


def _of_type(job_type: str, instance: str) -> list[JobQuerySet]:
    """Return the jobs of a type, of each shard."""
    names = names_of(instance, job_type)  # as for the verbs: jobs of a renamed type too
    places = [Job.objects.using(shard.alias) for shard in shards(instance)]
    return [
        rows.filter(job_type__name__in=names, job_type__instance=instance).select_related(
            "queue", "job_type"
        )
        for rows in places
    ]


def _with(jobs: JobQuerySet, values: dict[str, Any]) -> JobQuerySet:
    """Return the jobs with these field values; a queue may be given by its name, as to `enqueue`.

    Raise `InvalidJobError` for a misspelt state, outcome or phase, which no job ever has.
    """
    wanted: dict[str, Any] = {}
    for name, value in values.items():
        choices = _CHOICES.get(name)
        if choices and value not in choices:
            near = nearest_name(str(value), choices)
            raise InvalidJobError(f"jobs with field values: {name}={value!r:.100} is none{near}")
        is_name = name == "queue" and isinstance(value, str)
        wanted["queue__name" if is_name else name] = value
    return jobs.filter(**wanted)


def _explained(found: Sequence[Job], job_type: str, instance: str) -> str:
    """Return a line for each job found, or else for jobs of the type, the live ones first.

    Each line has the data of the job and why it does not run.
    """
    of_type = [rows.order_by("pk") for rows in _of_type(job_type, instance)]
    live = [rows.live()[:MOST_EXPLAINED] for rows in of_type]
    ended = [rows.filter(state=State.FINAL)[:MOST_EXPLAINED] for rows in of_type]
    listed = found or [*chain.from_iterable([*live, *ended])]
    if not listed:
        return f"there is no job of type {job_type!r}."
    lines = [f"{_with_data(job)}: {told(job)}" for job in listed[:MOST_EXPLAINED]]
    return "\n  ".join(["jobs of this type:", *lines])


def _wanted(job_type: str, values: dict[str, Any]) -> str:
    return ", ".join([repr(job_type), *(f"{k}={v!r}" for k, v in values.items())])


def _with_data(job: Job) -> str:
    return f"{job} {shown(job, job.job_data)}"


def _traces(job: Job) -> str:
    last = job.attempts.order_by("attempt").last()
    return f"\n{shown(job, last.traceback)}" if last and last.traceback != "NONE" else ""
