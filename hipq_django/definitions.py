"""The values of a job and of a job type, and the rules they obey. Pure."""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, dataclass, field, fields
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

from hipq_django.exceptions import InvalidJobError
from hipq_django.moments import MAX_SECONDS, aware_moment
from hipq_django.payloads import NONE, to_json
from hipq_django.ranking import MAX_PRIORITY, MIN_PRIORITY
from hipq_django.windows import parse_windows, windows_to_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from hipq_django.windows import TimeWindow

MAX_NAME_CHARS: Final = 100
MAX_KEY_CHARS: Final = 255
MAX_FACTOR: Final = Decimal(1_000_000)
FACTOR_DECIMALS: Final = 3
_FACTOR_STEP = Decimal(1).scaleb(-FACTOR_DECIMALS)
_NAME = re.compile(r"[a-z][a-z0-9_]*")


# Not frozen: that makes it three times as dear, and they are made by the ten thousand.
@dataclass(slots=True)
class NewJob:
    """One job for `enqueue_many`; what is not given comes from the job type.

    `job_key` identifies the answer, `scheduled_run_time` is an aware datetime, `timeout` is in
    seconds, `time_windows` a list of text or `TimeWindow`.
    """

    job_type: str
    job_data: Any = field(default_factory=dict, repr=False)
    _: KW_ONLY
    job_key: str | None = None
    scheduled_run_time: datetime | None = None
    priority: int | None = None
    throttle_factor: float | Decimal | None = None
    timeout: float | None = None
    time_windows: Sequence[str | TimeWindow] | None = None
    queue: str | None = None


JOB_OPTIONS = tuple(f.name for f in fields(NewJob))[2:]


@dataclass(frozen=True, slots=True)
class NewAnswer:
    """One answer for `receive_many`, and what a source's map function returns.

    It is a response, None too, unless an `error` is given, text or JSON. `message_id` is the
    sender's own id of the message, `part` the name of the part that is answered, where the job
    waits for several.
    """

    job_type: str
    job_key: str
    _: KW_ONLY
    response: Any = field(default=None, repr=False)
    error: Any = field(default=None, repr=False)
    message_id: str | None = None
    part: str | None = None


@dataclass(frozen=True, slots=True)
class Defaults:
    """The values that a job of this type gets where its own are not given."""

    timeout: float = 86_400.0
    priority: int = 100
    throttle_factor: Decimal = Decimal(1)
    time_windows: tuple[TimeWindow, ...] = ()
    time_zone: str = ""


def checked_name(what: str, name: object) -> str:
    """Return the name of an instance or queue; raise `InvalidJobError` unless it is one."""
    if isinstance(name, str) and len(name) <= MAX_NAME_CHARS and _NAME.fullmatch(name):
        return name
    raise InvalidJobError(
        f"{what} {name!r:.200}: a name has lower-case letters, digits and underscores, begins "
        f"with a letter and has at most {MAX_NAME_CHARS} characters."
    )


def checked_type_name(name: object) -> str:
    """Return the name of a job type: text of 1 to 100 printable characters."""
    if isinstance(name, str) and 0 < len(name) <= MAX_NAME_CHARS and name.isprintable():
        return name
    raise InvalidJobError(
        f"job type {name!r:.200}: the name must be text of 1 to {MAX_NAME_CHARS} printable "
        "characters."
    )


def checked_key(key: object) -> str:
    """Return the job key as it is stored; None, for no key, is stored as 'NONE'."""
    if key is None:
        return NONE
    if key == NONE:
        raise InvalidJobError(
            f"job_key {key!r} is the word that stands for no key; leave job_key out for no key, "
            "or use another text."
        )
    if not isinstance(key, str) or not key:
        raise InvalidJobError(
            f"job_key {key!r:.200}: a key is text that is not empty; use str(…) or leave it out."
        )
    if len(key) > MAX_KEY_CHARS:
        raise InvalidJobError(
            f"job_key {key[:40]!r}… has {len(key)} characters, at most {MAX_KEY_CHARS} are "
            "allowed; use a hash of it."
        )
    if not key.isprintable():
        raise InvalidJobError(f"job_key {key!r}: a key has printable characters only.")
    return key


def checked_data(data: object) -> Any:
    """Return the copy of `data` that is stored; raise `InvalidJobError` unless it is JSON."""
    try:
        return to_json(data)
    except ValueError as error:
        raise InvalidJobError(f"job_data is not JSON: {error}.") from error


def checked_timeout(timeout: object) -> float:
    """Return the timeout in seconds, above 0 and at most ten years."""
    number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if number and 0 < timeout <= MAX_SECONDS:  # type: ignore[operator]
        return float(timeout)  # type: ignore[arg-type]
    raise InvalidJobError(
        f"timeout {timeout!r}: give seconds above 0, at most {MAX_SECONDS:,} (ten years)."
    )


def checked_max_timeout(max_timeout: object, timeout: float) -> float | None:
    """Return how long an attempt may take with all its extensions, at least the timeout."""
    if max_timeout is None:
        return None
    number = isinstance(max_timeout, int | float) and not isinstance(max_timeout, bool)
    if number and timeout <= max_timeout <= MAX_SECONDS:  # type: ignore[operator]
        return float(max_timeout)  # type: ignore[arg-type]
    raise InvalidJobError(
        f"max_timeout {max_timeout!r}: give seconds, at least the timeout ({timeout:g}) and at "
        f"most {MAX_SECONDS:,} (ten years)."
    )


def checked_percent(percent: object) -> float:
    """Return how much of a job is done, from 0 to 100."""
    number = isinstance(percent, int | float) and not isinstance(percent, bool)
    if number and 0 <= percent <= 100:  # type: ignore[operator]
        return float(percent)  # type: ignore[arg-type]
    raise InvalidJobError(f"percent {percent!r:.200}: give a number from 0 to 100.")


def checked_message(message: object) -> str:
    """Return what is said beside the percent."""
    if isinstance(message, str):
        return message
    raise InvalidJobError(f"message {message!r:.200}: give text, or leave it out.")


def checked_extension(seconds: object) -> float:
    """Return by how many seconds a deadline is moved, above 0 and at most ten years."""
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if number and 0 < seconds <= MAX_SECONDS:  # type: ignore[operator]
        return float(seconds)  # type: ignore[arg-type]
    raise InvalidJobError(
        f"seconds {seconds!r:.200}: give a number above 0, at most {MAX_SECONDS:,} (ten years)."
    )


def checked_priority(priority: object) -> int:
    """Return the priority; lower is sooner."""
    whole = isinstance(priority, int) and not isinstance(priority, bool)
    if whole and MIN_PRIORITY <= priority <= MAX_PRIORITY:  # type: ignore[operator]
        return int(priority)  # type: ignore[call-overload, no-any-return]
    raise InvalidJobError(
        f"priority {priority!r}: give a whole number from {MIN_PRIORITY:,} to {MAX_PRIORITY:,}; "
        "lower runs sooner."
    )


def checked_factor(factor: object) -> Decimal:
    """Return the throttle factor; 0 is critical: not counted and never held back by the limit."""
    try:
        number = Decimal(str(factor)) if not isinstance(factor, bool) else Decimal("NaN")
    except InvalidOperation:
        number = Decimal("NaN")
    numeric = isinstance(factor, int | float | Decimal)
    if numeric and number.is_finite() and 0 <= number <= MAX_FACTOR:
        rounded = number.quantize(_FACTOR_STEP)
        if rounded == number:
            return rounded
    raise InvalidJobError(
        f"throttle_factor {factor!r}: give a number from 0 to {MAX_FACTOR:,} with at most "
        f"{FACTOR_DECIMALS} decimals."
    )


def checked_counted(counted: object) -> bool:
    """Return whether the answers of a job type have no names and are counted."""
    if isinstance(counted, bool):
        return counted
    raise InvalidJobError(f"counted_answers={counted!r:.200}: give True or False.")


def checked_windows(windows: object) -> list[str]:
    """Return the time windows in the text form that is stored."""
    return windows_to_json(parse_windows(windows))  # type: ignore[arg-type]


def checked_zone(name: object) -> str:
    """Return the name of a time zone; '' stands for the project's TIME_ZONE."""
    try:
        if name and isinstance(name, str):
            ZoneInfo(name)
        elif name != "":
            raise ValueError(name)
    except (ValueError, OSError, KeyError) as error:
        raise InvalidJobError(
            f"time zone {name!r} is unknown; give a name such as 'Europe/Paris'."
        ) from error
    return str(name)


def checked_moment(moment: object) -> datetime:
    """Return the scheduled run time: an aware datetime from 1970 to 9000."""
    return aware_moment("scheduled_run_time", moment)
