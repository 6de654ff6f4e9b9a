"""Which job a verb is about: a `Job`, or a job type and a key."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from typing import (
    Any,
    Concatenate,
    Generic,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeVar,
    cast,
    overload,
)

from asgiref.sync import sync_to_async

from hipq_django.conf.instances import get_instance, is_replica
from hipq_django.domain.states import NONE
from hipq_django.domain.validation import checked_key, checked_type_name
from hipq_django.exceptions import InvalidJobError
from hipq_django.job_types.registry import names_of
from hipq_django.models.job import Job, JobQuerySet
from hipq_django.models.undeclared_names import check_declared
from hipq_django.sharding import routing

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Keyed(NamedTuple):
    """A job by the name of its type and its key, as a caller of `verb` names it."""

    job_type: str
    job_key: str
    verb: str
    shard_key: str | None = None


class JobVerb(Protocol, Generic[P, R_co]):
    """A function about one job, which takes the job itself, or its type and key."""

    @overload
    def __call__(self, job: Job, /, *args: P.args, **options: P.kwargs) -> R_co: ...
    @overload
    def __call__(
        self, job_type: str, job_key: str, /, *args: P.args, **options: P.kwargs
    ) -> R_co: ...


def verb(core: Callable[Concatenate[Job | Keyed, P], R]) -> JobVerb[P, R]:
    """Let a function that takes a `Job` or a `Keyed` be called with a job, or with type and key.

    A `shard_key` belongs to the key. The text of an `InvalidJobError` begins with the name of the
    verb.
    """
    name = core.__name__

    @wraps(core)
    def call(*args: Any, **options: Any) -> R:
        try:
            if args and isinstance(args[0], Job):
                _check_job(args[0])
                return core(*args, **options)
            which, rest = _keyed(name, args, options)
            return core(which, *rest, **options)
        except InvalidJobError as error:
            if not str(error).startswith(f"{name} "):
                error.args = (f"{name}: {error}",)
            raise

    return cast("JobVerb[P, R]", call)


def _keyed(name: str, args: Sequence[Any], options: dict[str, Any]) -> tuple[Keyed, Sequence[Any]]:
    """Return type and key as one, which may be given by name, and the other arguments."""
    named = [options.pop(key) for key in ("job_type", "job_key") if key in options]
    given = [*args[:2], *named]
    if len(given) < 2 or not isinstance(given[0], str):
        raise TypeError(f"{name}: give a Job, or a job type and a key, and not {given!r:.200}.")
    return Keyed(given[0], given[1], name, options.pop("shard_key", None)), args[2:]


def twin(sync: JobVerb[P, R]) -> JobVerb[P, Coroutine[Any, Any, R]]:
    """Return the same verb for async code."""
    return cast("JobVerb[P, Coroutine[Any, Any, R]]", sync_to_async(sync))


def _check_job(job: Job) -> None:
    if job.pk is None:
        raise InvalidJobError("the job was never enqueued.")
    if is_replica(job.using):  # a router has read it there
        job.stand_for_row_in(routing.of_id(job.queue.instance, job.pk))


def pruned(job: Job) -> InvalidJobError:
    """Return the error of a job whose row is gone."""
    return InvalidJobError(
        f"job {job.pk} does not exist any more; it was pruned, or its transaction was rolled back."
    )


def job_of(which: Job | Keyed, instance: str, *, final: bool = False) -> Job:
    """Return the job that is meant: with a key the live one, else the newest final one.

    With `final` a final one is preferred. Raise `InvalidJobError` where no job has the key. Whether
    the job's state will do is for the verb to say.
    """
    if isinstance(which, Job):
        return which
    places = [rows.select_related("queue", "job_type") for rows in jobs_with_key(which, instance)]
    live, ended = [r.live() for r in places], [r.final().order_by("-pk") for r in places]
    for found in (*ended, *live) if final else (*live, *ended):
        if job := found.first():
            return job
    raise InvalidJobError(f"job type {which.job_type!r} has no job with key {which.job_key!r}.")


def jobs_with_key(which: Keyed, instance: str) -> list[JobQuerySet]:
    """Return the jobs with a key, of all names of a type, in each database where they may be."""
    job_type, job_key = checked_type_name(which.job_type), checked_key(which.job_key)
    if job_key == NONE:
        raise InvalidJobError("job_key None names no job; give the job, or its key.")
    check_declared(instance, job_type, which.verb)
    names, config = names_of(instance, job_type), get_instance(instance)
    databases = routing.of_key(config, job_type, job_key, which.shard_key, which.verb)
    return [Job.objects.using(each).with_key(job_key, instance, names) for each in databases]
