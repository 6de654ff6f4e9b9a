"""`job_type`, by which a project declares job types, and those that the code has declared."""

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
from hipq_django.job_types.spec import DEFAULT_QUEUE, JobTypeSpec, checked_handler

if TYPE_CHECKING:
    from collections.abc import Callable

    from hipq_django.domain.retries import RetryPolicy

    Handler = Callable[..., Any]

_declared: dict[tuple[str, str], JobTypeSpec] = {}

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
        try:
            defaults = _defaults(options)
            declared = JobTypeSpec(
                name=checked_type_name(name),
                handler=checked_handler(name, handler, "job"),
                instance=checked_name("instance", instance),
                queue=checked_name("queue", queue),
                defaults=defaults,
                policy=_checked_policy(name, options.get("retry")),
                max_timeout=checked_max_timeout(options.get("max_timeout"), defaults.timeout),
                sensitive=checked_fields(options.get("sensitive", ())),
                counted_answers=checked_counted(options.get("counted_answers", False)),
            )
        except InvalidJobError as error:
            raise InvalidJobTypeError(f"job type {name!r}: {error}") from error
        _register(declared)
        return declared

    return declare


def _register(declared: JobTypeSpec) -> None:
    """Make a job type known; raise `InvalidJobTypeError` if another one has its name."""
    key = (declared.instance, declared.name)
    other = _declared.get(key)
    if other is not None and _place(other.handler) != _place(declared.handler):
        raise InvalidJobTypeError(
            f"job type {declared.name!r} is declared twice in instance {declared.instance!r}: by "
            f"{_place(other.handler)} and {_place(declared.handler)}; rename one of them."
        )
    _declared[key] = declared


def get_declared(instance: str, name: str) -> JobTypeSpec | None:
    """Return the declaration of a job type, None where this process does not know it."""
    return _declared.get((instance, name))


def get_all_declared(instance: str) -> list[JobTypeSpec]:
    """Return every declared job type of an instance."""
    return [declared for (inst, _), declared in _declared.items() if inst == instance]


def forget(declared: JobTypeSpec) -> None:
    """Take a declaration back; for tests that declare their own types."""
    _declared.pop((declared.instance, declared.name), None)


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


def _place(handler: Handler) -> str:
    return f"{handler.__module__}.{handler.__qualname__}"
