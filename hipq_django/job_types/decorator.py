"""`job_type`: how a project declares a job type and its handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hipq_django.conf.rules import DEFAULT
from hipq_django.domain.drafts import JobDefaults
from hipq_django.domain.redaction import checked_fields
from hipq_django.domain.validation import (
    checked_counted,
    checked_factor,
    checked_max_timeout,
    checked_name,
    checked_priority,
    checked_timeout,
    checked_type_name,
    checked_zone,
)
from hipq_django.domain.windows import parse_windows
from hipq_django.exceptions import InvalidJobError, InvalidJobTypeError, UnknownOptionError
from hipq_django.job_types.registry import register
from hipq_django.job_types.spec import DEFAULT_QUEUE, JobTypeSpec, checked_handler

if TYPE_CHECKING:
    from collections.abc import Callable

    from hipq_django.domain.retries import RetryPolicy

    Handler = Callable[..., Any]

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


def job_type(
    name: str, *, queue: str = DEFAULT_QUEUE, instance: str = DEFAULT, **options: Any
) -> Callable[[Handler], JobTypeSpec]:
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

    def declare(handler: Handler) -> JobTypeSpec:
        defaults = _type_value(name, _defaults, options)
        declared = JobTypeSpec(
            name=_type_value(name, checked_type_name, name),
            handler=checked_handler(name, handler, "job"),
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


def _defaults(options: dict[str, Any]) -> JobDefaults:
    plain = JobDefaults()
    return JobDefaults(
        timeout=checked_timeout(options.get("timeout", plain.timeout)),
        priority=checked_priority(options.get("priority", plain.priority)),
        throttle_factor=checked_factor(options.get("throttle_factor", plain.throttle_factor)),
        time_windows=parse_windows(options.get("time_windows") or ()),
        time_zone=checked_zone(options.get("time_zone") or ""),
    )


def _checked_policy(name: str, policy: Any) -> RetryPolicy | None:
    usable = callable(getattr(policy, "decide", None)) and not isinstance(policy, type)
    if policy is None or usable:
        return policy  # type: ignore[no-any-return]  # by what it can do
    raise InvalidJobTypeError(
        f"job type {name!r}: retry={policy!r} is not a policy; give Exponential(…), Fixed(…), "
        "Never() or an object with a method decide(failure)."
    )
