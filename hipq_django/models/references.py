"""Which job a verb is about: a `Job`, or a job type and a key."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from inspect import signature
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
from hipq_django.job_types.declaration import Declaration
from hipq_django.job_types.registry import names_of
from hipq_django.models.job import Job, JobQuerySet
from hipq_django.models.undeclared_names import check_declared

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Keyed(NamedTuple):
    """A job by the name of its type and its key."""

    job_type: str
    job_key: str


class Verb(Protocol, Generic[P, R_co]):
    """A function about one job, which takes the job itself, or its type and key."""

    @overload
    def __call__(self, job: Job, /, *args: P.args, **options: P.kwargs) -> R_co: ...
    @overload
    def __call__(
        self, job_type: str, job_key: str, /, *args: P.args, **options: P.kwargs
    ) -> R_co: ...


def verb(core: Callable[Concatenate[Job | Keyed, P], R]) -> Verb[P, R]:
    """Let a function that takes a `Job` or a `Keyed` be called with a job, or with type and key."""

    @wraps(core)
    def call(*args: Any, **options: Any) -> R:
        if not (args and isinstance(args[0], Job)):
            args = _with_key(core, args, options)
        else:
            _check_job(core.__name__, args[0], options)
        with refusing(core.__name__):
            return core(*args, **options)

    return cast("Verb[P, R]", call)


class refusing:  # noqa: N801 - it is used as a function; as a generator it would take longer
    """Let what is refused begin with the name of the verb that refuses it."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Let the error name the verb."""
        if isinstance(error, InvalidJobError):
            error.args = (f"{self.name}: {error}",)


def pruned(job: Job) -> InvalidJobError:
    """Return the error of a job whose row is gone."""
    return InvalidJobError(
        f"job {job.pk} does not exist any more; it was pruned, or its transaction was rolled back."
    )


def _with_key(core: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Return the arguments with type and key as one; they may be given by name."""
    given = [*args[:2]]
    given += [options.pop(name) for name in Keyed._fields[len(given) :] if name in options]
    if len(given) < len(Keyed._fields) or not isinstance(given[0], str):
        raise _no_job(core, given, options)
    if isinstance(given[1], Job):
        raise TypeError(
            f"{core.__name__}: {given[1]} is a Job, but the verbs of a job type take a job_key; "
            f"call hipq_django.{_written(core, 'job')}."
        )
    if not isinstance(given[1], str) and _lacks_arguments(core, args[2:], options):
        raise _no_job(core, given, options)  # as in extend("charge_card", 5)
    return (Keyed(*given), *args[2:])


def _lacks_arguments(
    core: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
) -> bool:
    try:
        signature(core).bind(None, *args, **options)
    except TypeError:
        return True
    return False


def shown(given: object) -> str:
    """Return what was given instead of a job, for an error."""
    if isinstance(given, Declaration):  # it has dozens of values
        return f"the declaration of {given.name!r}"
    return f"{given!r:.200}"


def _no_job(core: Callable[..., Any], given: list[Any], options: dict[str, Any]) -> TypeError:
    why = f"{shown(given[0])} is no Job" if given else "no job is given"
    by_key = f"{_written(core, *_EXAMPLE)} with a job type and a key"
    if "job" in options:
        why = "the job has its place and no name"
    elif given and isinstance(given[0], Declaration):
        by_key = f"{given[0].function_name}.{_written(core, _EXAMPLE[1])} with a key"
    return TypeError(f"{core.__name__}: {why}; write {_written(core, 'job')}, or {by_key}.")


_EXAMPLE = ('"charge_card"', '"order-7"')


def _written(core: Callable[..., Any], *which: str) -> str:
    """Return a call of a verb as one writes it, with all the arguments that it needs."""
    _, *others = signature(core).parameters.values()
    needed = [each.name for each in others if each.default is each.empty]
    return f"{core.__name__}({', '.join([*which, *needed])})"


def twin(sync: Verb[P, R]) -> Verb[P, Coroutine[Any, Any, R]]:
    """Return the same verb for async code."""
    return cast("Verb[P, Coroutine[Any, Any, R]]", sync_to_async(sync))


def _check_job(name: str, job: Job, options: dict[str, Any]) -> None:
    if job.pk is None:
        raise InvalidJobError(f"{name}: the job was never enqueued.")
    instance = options.get("instance")
    if instance is not None and instance != job.queue.instance:
        raise InvalidJobError(
            f"{name}: {job} is of instance {job.queue.instance!r}, and instance={instance!r} is "
            "given; leave that out, it belongs to a job type and a key."
        )
    _leave_replica(job)


def _leave_replica(job: Job) -> None:
    """Let a verb write to the database of the job's instance, where a router reads elsewhere."""
    if is_replica(job.using):
        job.stand_for_row_in(get_instance(job.queue.instance).database)


def live_job(which: Job | Keyed, name: str, instance: str) -> Job:
    """Return the job that is meant: with a key the live one, else the newest final one.

    Raise `InvalidJobError` where no job has the key. Whether a final one will do is for the verb to
    say, in the same words as of a job that it was given. `name` is that of the verb.
    """
    if isinstance(which, Job):
        return which
    found = _by_key(which, name, instance)
    return found.live or found.final or _unknown(which)


def final_job(which: Job | Keyed, name: str, instance: str) -> Job:
    """Return the job that is meant: with a key the newest final one, else the live one."""
    if isinstance(which, Job):
        return which
    found = _by_key(which, name, instance)
    return found.final or found.live or _unknown(which)


class _Found:
    """The jobs of a type with a key; each is looked up when it is asked for."""

    def __init__(self, jobs: JobQuerySet) -> None:
        self._jobs = jobs

    @property
    def live(self) -> Job | None:
        return self._jobs.live().first()

    @property
    def final(self) -> Job | None:
        return self._jobs.final().order_by("-pk").first()


def jobs_with_key(which: Keyed, name: str, instance: str) -> JobQuerySet:
    """Return the jobs with a key, of all names of a type; `name` is that of the verb."""
    job_type, job_key = checked_type_name(which.job_type), checked_key(which.job_key)
    if job_key == NONE:
        raise InvalidJobError("job_key None names no job; give the job, or its key.")
    check_declared(instance, job_type, name)
    using, names = get_instance(instance).database, names_of(instance, job_type)
    return Job.objects.using(using).with_key(job_key, instance, names)


def _by_key(which: Keyed, name: str, instance: str) -> _Found:
    return _Found(jobs_with_key(which, name, instance).select_related("queue", "job_type"))


def _unknown(which: Keyed) -> Job:
    raise InvalidJobError(f"job type {which.job_type!r} has no job with key {which.job_key!r}.")
