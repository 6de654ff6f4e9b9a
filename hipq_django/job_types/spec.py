"""A declared job type: what `job_type` makes of the decorated function."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from hipq_django.conf.rules import DEFAULT
from hipq_django.domain.drafts import JobDefaults
from hipq_django.exceptions import InvalidJobTypeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hipq_django.domain.retries import RetryPolicy
    from hipq_django.models import Job

    Handler = Callable[..., Any]

F = TypeVar("F", bound="Callable[..., Any]")

DEFAULT_QUEUE = "default"


@dataclass(eq=False)
class JobTypeSpec:
    """A declared job type: its code and the defaults of its jobs.

    It stands in the place of the decorated function: calling it calls the handler.
    """

    name: str
    handler: Handler
    instance: str = DEFAULT
    queue: str = DEFAULT_QUEUE
    defaults: JobDefaults = field(default_factory=JobDefaults)
    policy: RetryPolicy | None = None
    max_timeout: float | None = None
    sensitive: tuple[str, ...] = ()
    counted_answers: bool = False
    response_handler: Handler | None = None
    retry_handler: Handler | None = None

    def __post_init__(self) -> None:
        self.__doc__ = self.handler.__doc__
        self.__module__ = self.handler.__module__
        self.__qualname__ = self.handler.__qualname__

    @cached_property
    def as_declared(self) -> dict[str, Any]:
        """The values a row is created with, in the form that is compared and stored."""
        return {
            "queue": self.queue,
            "default_timeout": self.defaults.timeout,
            "default_priority": self.defaults.priority,
            "default_throttle_factor": str(self.defaults.throttle_factor),
            "default_time_windows": [str(window) for window in self.defaults.time_windows],
            "time_zone": self.defaults.time_zone,
        }

    def __call__(self, job: Job) -> Any:
        return self.handler(job)

    def on_response(self, handler: F) -> F:
        """Declare the response handler: `handler(job, response)`, run when the answer is in."""
        self._check_free("on_response", self.response_handler)
        self.response_handler = checked_handler(self.name, handler, "job", "response")
        return handler

    def on_error(self, handler: F) -> F:
        """Declare the retry handler: `handler(job)` returns RetryIn, RetryAt, GiveUp or None."""
        self._check_free("on_error", self.retry_handler)
        self.retry_handler = checked_handler(self.name, handler, "job")
        return handler

    def enqueue(self, job_data: Any = None, **options: Any) -> Job:
        """Enqueue a job of this type; options as for `hipq_django.enqueue`."""
        from hipq_django.api import enqueueing  # it stands above what is declared

        return enqueueing.enqueue(self.name, job_data, **{"instance": self.instance, **options})

    async def aenqueue(self, job_data: Any = None, **options: Any) -> Job:
        """Enqueue a job of this type from async code."""
        from hipq_django.api import enqueueing  # as above

        return await enqueueing.aenqueue(
            self.name, job_data, **{"instance": self.instance, **options}
        )

    def _check_free(self, name: str, taken: Handler | None) -> None:
        if taken is not None:
            raise InvalidJobTypeError(
                f"job type {self.name!r} has {name} {taken.__qualname__} already."
            )


def checked_handler(name: str, handler: F, *given: str) -> F:
    """Return the handler; raise `InvalidJobTypeError` unless it takes what it will be given."""
    if not callable(handler) or not hasattr(handler, "__qualname__"):
        raise InvalidJobTypeError(f"job type {name!r}: handler {handler!r} is not a function.")
    try:
        signature = inspect.signature(handler)
    except (ValueError, TypeError):  # of something that is not written in Python
        return handler
    try:
        signature.bind(*given)
    except TypeError as error:
        raise InvalidJobTypeError(
            f"job type {name!r}: handler {handler.__qualname__}{signature} is called with "
            f"({', '.join(given)}): {error}."
        ) from error
    return handler
