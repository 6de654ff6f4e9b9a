"""Jobs and answers before they are rows. Pure."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from hipq_django.domain.parts import UNNAMED
from hipq_django.domain.states import NONE
from hipq_django.exceptions import InvalidJobError, UnknownOptionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime, timedelta
    from decimal import Decimal

    from hipq_django.domain.dependencies import On
    from hipq_django.domain.retries import RetryPolicy
    from hipq_django.domain.schedules import Cron, Every
    from hipq_django.domain.uniqueness import Scope
    from hipq_django.domain.windows import TimeWindow
    from hipq_django.models import Answer, Batch, Job


OnConflict = Literal["raise", "return", "replace"]
"""What to do while another live job has the key."""


class JobOptions(TypedDict, total=False):
    """The options of one job; those that are not given come from the job type."""

    job_key: str | None
    scheduled_run_time: datetime | None
    delay: float | timedelta | None
    priority: int | None
    throttle_factor: float | Decimal | None
    timeout: float | None
    time_windows: Sequence[str | TimeWindow] | None
    queue: str | None
    after: Sequence[Job | int] | None
    on: On | None
    batch: Batch | int | None
    unique_key: str | None
    shard_key: str | None


class EnqueueOptions(JobOptions, total=False):
    """The options of one call that enqueues a job."""

    on_conflict: OnConflict | None


class TypeOptions(TypedDict, total=False):
    """The options of a job type, beside its name, queue and instance."""

    timeout: float
    max_timeout: float | None
    priority: int
    throttle_factor: float | Decimal
    time_windows: Sequence[str | TimeWindow] | None
    time_zone: str | None
    retry: RetryPolicy | None
    sensitive: Sequence[str]
    counted_answers: bool
    aliases: Sequence[str]
    unique: Scope | bool | None
    unique_on: Sequence[str] | None
    schedule: str | Cron | Every | Mapping[str, str | Cron | Every] | None


# Not frozen: that would cost three times as much, and tens of thousands are created.
@dataclass(slots=True)
class NewJob:
    """One job for `enqueue_many`; values that are not given come from the job type.

    `job_key` identifies the answer, `scheduled_run_time` is an aware datetime, or `delay` says in
    how many seconds, or what timedelta, from now; `timeout` is in seconds, `time_windows` a list of
    text or `TimeWindow`. `after` are jobs, or their ids, that have to be over first, with `on` as
    "succeeded" or "final"; `batch` is the batch that it belongs to; `unique_key` is
    compared instead of the arguments, if the type is unique. `shard_key` says in which shard it is.
    """

    job_type: str
    job_data: Any = field(default_factory=dict, repr=False)
    _: KW_ONLY
    job_key: str | None = None
    scheduled_run_time: datetime | None = None
    delay: float | timedelta | None = None
    priority: int | None = None
    throttle_factor: float | Decimal | None = None
    timeout: float | None = None
    time_windows: Sequence[str | TimeWindow] | None = None
    queue: str | None = None
    after: Sequence[Job | int] | None = None
    on: On | None = None
    batch: Batch | int | None = None
    unique_key: str | None = None
    shard_key: str | None = None


@dataclass(slots=True)
class BoundJob(NewJob):
    """A new job of a task, whose arguments have been checked already."""

    _: KW_ONLY
    instance: str | None = None
    """The instance of its task; None if whoever made it stores it there."""


JOB_OPTIONS = tuple(f.name for f in fields(NewJob))[2:]
CALL_OPTIONS = tuple(EnqueueOptions.__annotations__.keys() - JobOptions.__annotations__.keys())


def split_options(
    job_type: str, options: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of a job and those of the call that stores it, of both together.

    Raise `UnknownOptionError` for an unknown one.
    """
    for name in options:
        if name not in JOB_OPTIONS and name not in CALL_OPTIONS:
            raise UnknownOptionError(
                f"job type {job_type!r:.200}", name, (*JOB_OPTIONS, *CALL_OPTIONS)
            )
    of_job = {name: value for name, value in options.items() if name in JOB_OPTIONS}
    return of_job, {name: value for name, value in options.items() if name in CALL_OPTIONS}


def unstored_options(job_type: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a job that is not stored yet.

    Raise `InvalidJobError` for options of the call that stores it.
    """
    of_job, of_call = split_options(job_type, options)
    for name in of_call:
        raise InvalidJobError(
            f"{job_type}: {name}= belongs to the call that stores the job; give it to "
            "enqueue or enqueue_many."
        )
    return of_job


@dataclass(frozen=True, slots=True)
class NewAnswer:
    """One answer for `receive_many`, and what a source's map function returns.

    It is a response (even None) unless an `error` other than None is given, which is text or JSON.
    `message_id` is the sender's own id of the message. If the job waits for several
    answers, `part` is the name of this one. `shard_key` is that of the job, if it has one.
    """

    job_type: str
    job_key: str
    _: KW_ONLY
    response: Any = field(default=None, repr=False)
    error: Any = field(default=None, repr=False)
    message_id: str | None = None
    part: str | None = None
    shard_key: str | None = None


@dataclass(frozen=True, slots=True)
class IncomingAnswer:
    """A checked answer before it is stored.

    `attempt` is the attempt that a signed callback URL was made for; None if the answer finds its
    job by the key. `problem` says what is wrong with a malformed message, `part` which of several
    answers this is. `names` are all names of the job type, if the code knows it by several.
    `databases` are the aliases of those where its job may be, in the order in which they are asked.
    """

    instance: str
    job_type: str
    job_key: str
    kind: str
    payload: Any = field(repr=False)
    message_id: str = NONE
    attempt: int | None = None
    problem: str = NONE
    part: str = UNNAMED
    names: Sequence[str] = ()
    databases: Sequence[str] = ()


def as_incoming(answer: Answer, names: Sequence[str] = ()) -> IncomingAnswer:
    """Return the message of a stored answer."""
    return IncomingAnswer(
        answer.instance, answer.job_type, answer.job_key, answer.kind, answer.payload,
        answer.message_id, part=answer.part, names=names,
    )  # fmt: skip
