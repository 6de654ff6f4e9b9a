"""`job_type`: how a project declares a job type and its handlers."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, TypeVar

from hipq_django import api
from hipq_django.definitions import (
    Defaults,
    checked_counted,
    checked_factor,
    checked_max_timeout,
    checked_name,
    checked_priority,
    checked_timeout,
    checked_type_name,
    checked_zone,
)
from hipq_django.exceptions import InvalidJobError, InvalidJobTypeError, UnknownOptionError
from hipq_django.redaction import checked_fields
from hipq_django.registry import DEFAULT_QUEUE, DeclaredType, register
from hipq_django.setting import DEFAULT
from hipq_django.windows import parse_windows

if TYPE_CHECKING:
    from collections.abc import Callable

    from hipq_django.models import Job
    from hipq_django.retries import RetryPolicy

    Handler = Callable[..., Any]

F = TypeVar("F", bound="Callable[..., Any]")

TYPE_OPTIONS = (
    "timeout",
    "max_timeout",
    "priority",
    "throttle_factor",
    "time_windows",
    "time_zone",
    "retry",
    "sensitive",
    "counted_answers",
)


class Declaration(DeclaredType):
    """What `job_type` makes of the decorated function.

    Calling it calls the handler, as the undecorated function would.
    """

    def __call__(self, job: Job) -> Any:
        return self.handler(job)

    def on_response(self, handler: F) -> F:
        """Declare the response handler: `handler(job, response)`, run when the answer is in."""
        self._check_free("on_response", self.response_handler)
        self.response_handler = _checked_handler(self.name, handler, "job", "response")
        return handler

    def on_error(self, handler: F) -> F:
        """Declare the retry handler: `handler(job)` returns RetryIn, RetryAt, GiveUp or None."""
        self._check_free("on_error", self.retry_handler)
        self.retry_handler = _checked_handler(self.name, handler, "job")
        return handler

    def enqueue(self, job_data: Any = None, **options: Any) -> Job:
        """Enqueue a job of this type; options as for `hipq_django.enqueue`."""
        return api.enqueue(self.name, job_data, **{"instance": self.instance, **options})

    async def aenqueue(self, job_data: Any = None, **options: Any) -> Job:
        """Enqueue a job of this type from async code."""
        return await api.aenqueue(self.name, job_data, **{"instance": self.instance, **options})

    def _check_free(self, name: str, taken: Handler | None) -> None:
        if taken is not None:
            raise InvalidJobTypeError(
                f"job type {self.name!r} has {name} {taken.__qualname__} already."
            )


def job_type(
    name: str, *, queue: str = DEFAULT_QUEUE, instance: str = DEFAULT, **options: Any
) -> Callable[[Handler], Declaration]:
    """Declare the decorated function as the handler of job type `name`.

    Options are the defaults of its jobs: `timeout` (seconds, 86,400), `priority` (100, lower is
    sooner), `throttle_factor` (1), `time_windows` (none), `time_zone` of the windows (the
    project's TIME_ZONE); `retry`, a policy such as `Exponential(max_attempts=5)`; `max_timeout`,
    how many seconds an attempt may get by `extend` (ten times its timeout); `sensitive`, the
    fields of data and answers that are masked in admin, log and errors, `["card"]`;
    `counted_answers=True` where handlers return `WAIT_FOR(number)`. The handler takes a Job and
    returns JSON, `WAIT` or `WAIT_FOR`; it may be `async def`.
    """
    if callable(name):
        called = getattr(name, "__name__", "handler")
        raise InvalidJobTypeError(
            f'job_type has no name; write @hipq.job_type("{called}") above {called}.'
        )
    for option in options.keys() - set(TYPE_OPTIONS):
        raise UnknownOptionError(f"job type {name!r}", option, (*TYPE_OPTIONS, "queue", "instance"))

    def declare(handler: Handler) -> Declaration:
        defaults = _type_value(name, _defaults, options)
        declared = Declaration(
            name=_type_value(name, checked_type_name, name),
            handler=_checked_handler(name, handler, "job"),
            instance=_type_value(name, lambda v: checked_name("instance", v), instance),
            queue=_type_value(name, lambda v: checked_name("queue", v), queue),
            defaults=defaults,
            policy=_checked_policy(name, options.get("retry")),
            max_timeout=_type_value(
                name,
                lambda v: checked_max_timeout(v, defaults.timeout),
                options.get("max_timeout"),
            ),
            sensitive=_type_value(name, checked_fields, options.get("sensitive", ())),
            counted_answers=_type_value(
                name, checked_counted, options.get("counted_answers", False)
            ),
        )
        register(declared)
        return declared

    return declare


def _type_value(name: str, check: Callable[[Any], Any], value: Any) -> Any:
    try:
        return check(value)
    except InvalidJobError as error:
        raise InvalidJobTypeError(f"job type {name!r}: {error}") from error


def _defaults(options: dict[str, Any]) -> Defaults:
    plain = Defaults()
    return Defaults(
        timeout=checked_timeout(options.get("timeout", plain.timeout)),
        priority=checked_priority(options.get("priority", plain.priority)),
        throttle_factor=checked_factor(options.get("throttle_factor", plain.throttle_factor)),
        time_windows=parse_windows(options.get("time_windows") or ()),
        time_zone=checked_zone(options.get("time_zone") or ""),
    )


def _checked_handler(name: str, handler: F, *given: str) -> F:
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


def _checked_policy(name: str, policy: Any) -> RetryPolicy | None:
    usable = callable(getattr(policy, "decide", None)) and not isinstance(policy, type)
    if policy is None or usable:
        return policy  # type: ignore[no-any-return]
    raise InvalidJobTypeError(
        f"job type {name!r}: retry={policy!r} is not a policy; give Exponential(…), Fixed(…), "
        "Never() or an object with a method decide(failure)."
    )
