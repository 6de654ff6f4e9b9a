"""`job_type`: declares a function that gets the whole job, and may wait for an answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from asgiref.sync import sync_to_async

import hipq_django
from hipq_django.conf.rules import DEFAULT
from hipq_django.domain.drafts import (
    EnqueueOptions,
    JobOptions,
    NewJob,
    TypeOptions,
    unstored_options,
)
from hipq_django.job_types.declaration import (
    DEFAULT_QUEUE,
    Declaration,
    check_is_function,
    checked_values,
)
from hipq_django.job_types.registry import register

if TYPE_CHECKING:
    from collections.abc import Callable

    from hipq_django.models import Job

    Handler = Callable[[Job], Any]

F = TypeVar("F", bound="Callable[[Job], Any]")
G = TypeVar("G", bound="Callable[[Job, Any], Any]")


def job_type(
    name: str,
    *,
    queue: str = DEFAULT_QUEUE,
    instance: str = DEFAULT,
    **options: Unpack[TypeOptions],
) -> Callable[[Handler], JobTypeSpec]:
    """Declare the decorated function as the handler of job type `name`.

    Options are the defaults of its jobs: `timeout` (seconds, 86,400), `priority` (100, lower is
    sooner), `throttle_factor` (1), `time_windows` (none), `time_zone` of the windows (the project's
    TIME_ZONE); `retry`, a policy such as `Exponential(max_attempts=5)`; `max_timeout`, how long
    `extend` can make an attempt (ten times its timeout); `sensitive`, the fields of data and
    answers that are masked in the admin, the log and errors, such as `["card"]`;
    `counted_answers=True` if handlers return `WAIT_FOR(number)`; `aliases`, former names whose jobs
    this code runs too; `unique` and `unique_on`, for at most one job with the same data;
    `schedule`, when it is due by itself. The handler takes a Job and returns JSON,
    `WAIT` or `WAIT_FOR`; it may be `async def`.
    """

    def declare(handler: Handler) -> JobTypeSpec:
        check_is_function(name, handler)
        values = checked_values(name, queue, instance, options)
        return register(JobTypeSpec(handler=handler, **values))

    checked_values(name, queue, instance, options)
    return declare


@dataclass(eq=False)
class JobTypeSpec(Declaration):
    """A declared job type whose handler takes the job.

    It replaces the decorated function: calling it calls the handler.
    """

    def __call__(self, job: Job) -> Any:
        return self.handler(job)

    def on_response(self, handler: G) -> G:
        """Declare the response handler: `handler(job, response)` runs when the answer has come."""
        check_is_function(self.name, handler)
        self.set_response_handler(handler)
        return handler

    def on_error(self, handler: F) -> F:
        """Declare the retry handler: `handler(job)` returns RetryIn, RetryAt, GiveUp or None."""
        check_is_function(self.name, handler)
        self.set_retry_handler(handler)
        return handler

    def enqueue(self, job_data: Any = None, **options: Unpack[EnqueueOptions]) -> Job:
        """Enqueue a job of this type; options as for `hipq_django.enqueue`."""
        given: Any = {**self.options, **options}
        return hipq_django.enqueue(self.name, job_data, instance=self.instance, **given)

    async def aenqueue(self, job_data: Any = None, **options: Unpack[EnqueueOptions]) -> Job:
        """Enqueue a job of this type from async code."""
        return await sync_to_async(self.enqueue)(job_data, **options)

    def new(self, job_data: Any = None, **options: Unpack[JobOptions]) -> NewJob:
        """Return a job that is not stored yet, for `enqueue_many`."""
        of_job = unstored_options(self.name, {**self.options, **options})
        return NewJob(self.name, {} if job_data is None else job_data, **of_job)
