"""The rules that the values of jobs, job types and answers obey. Pure.

What is given may be of a subclass, such as a member of `class Key(str, Enum)`, whose `str()` is
another text. It is returned as the plain value that it is, as every database stores it.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from math import nextafter
from typing import Any, Final, NamedTuple, TypeGuard
from zoneinfo import ZoneInfo

from hipq_django.domain.ordering import MAX_PRIORITY, MIN_PRIORITY
from hipq_django.domain.redaction import quoted
from hipq_django.domain.serialization import is_storable, sized_json
from hipq_django.domain.states import NONE
from hipq_django.domain.tokens import without_tokens
from hipq_django.domain.windows import parse_windows
from hipq_django.exceptions import InvalidJobError, ResultError

MAX_SECONDS: Final = 10 * 366 * 86_400
"""The longest timeout and delay: ten years, so that every moment stays representable."""

_AT_MOST_TEN_YEARS = f"at most {MAX_SECONDS:,} (ten years)."
ABOVE_ZERO: Final = nextafter(0, 1)
"""The smallest number above 0."""

_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
LATEST: Final = datetime(9000, 1, 1, tzinfo=UTC)

MAX_ID: Final = 2**63 - 1

MAX_NAME_CHARS: Final = 100
MAX_TYPE_NAME_CHARS: Final = 200
"""More than for other names: that of a task has the path of its module."""
MAX_KEY_CHARS: Final = 255
MAX_REASON_CHARS: Final = 1_000
MAX_FACTOR: Final = Decimal(1_000_000)
FACTOR_DECIMALS: Final = 3
_FACTOR_STEP = Decimal(1).scaleb(-FACTOR_DECIMALS)
_NAME = re.compile(r"[a-z][a-z0-9_]*")


@lru_cache(256)
def _is_name(name: str) -> bool:
    return bool(_NAME.fullmatch(name))


def checked_name(what: str, name: object) -> str:
    """Return the name of an instance or queue; raise `InvalidJobError` unless it is one."""
    if isinstance(name, str) and len(name) <= MAX_NAME_CHARS and _is_name(name):
        return str.__str__(name)
    raise InvalidJobError(
        f"{what} {quoted(name)}: a name consists of lower-case letters, digits and underscores, "
        f"begins with a letter and has at most {MAX_NAME_CHARS} characters."
    )


def is_id(value: object) -> TypeGuard[int]:
    """Return whether this is the id of a row. True is not, although Django takes it for 1."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MAX_ID


def id_from(value: object) -> int | None:
    """Return an id, given itself or its text; None for what is neither.

    As text it has no leading zeros: a row has one id, and the id one text.
    """
    if isinstance(value, str):
        value = int(value) if _ID.fullmatch(value) else None
    return value if is_id(value) else None


_ID = re.compile(r"[1-9][0-9]{0,18}")


def checked_type_name(name: object) -> str:
    """Return the name of a job type: text of 1 to 200 printable characters."""
    if isinstance(name, str) and 0 < len(name) <= MAX_TYPE_NAME_CHARS and name.isprintable():
        return str.__str__(name)
    raise InvalidJobError(
        f"job type {quoted(name)}: the name must be text of 1 to {MAX_TYPE_NAME_CHARS} printable "
        "characters."
    )


def checked_key(key: object) -> str:
    """Return the job key as it is stored; None, for no key, is stored as 'NONE'."""
    if key is None:
        return NONE
    usable = isinstance(key, str) and 0 < len(key) <= MAX_KEY_CHARS and key.isprintable()
    if usable and key != NONE:
        return str.__str__(key)
    raise InvalidJobError(
        f"job_key {quoted(key)}: a key is text of 1 to {MAX_KEY_CHARS} printable characters, and "
        f"not {NONE!r}, which stands for no key; use str(…) or a hash, or leave it out."
    )


def checked_data(data: object, max_bytes: int | None = None) -> Any:
    """Return the copy of `data` that is stored.

    Raise `InvalidJobError` unless it is JSON, and of at most `max_bytes`.
    """
    try:
        stored, size = sized_json(data)
    except ValueError as error:
        raise InvalidJobError(f"job_data is not JSON: {error}.") from error
    if max_bytes is not None and size > max_bytes:
        raise InvalidJobError(
            f"job_data has {size:,} bytes as JSON, and at most {max_bytes:,} are stored; keep it "
            "elsewhere and give its id, or raise MAX_DATA_BYTES in the setting HIPQ."
        )
    return stored


NULL_BYTES = len("null")

MAX_RESULT_BYTES = 16_000_000
"""Drivers take more than a second for ten million characters, and the whole batch waits for it."""


class CheckedResult(NamedTuple):
    """The copy of a result that is stored, and its size in bytes."""

    value: Any
    size: int


def checked_result(whose: str, value: Any) -> CheckedResult:
    """Return the copy of a result that is stored, and its size in bytes.

    Raise `ResultError` unless it is JSON of a size that can be stored.
    """
    if value is None:  # what most handlers return
        return CheckedResult(None, NULL_BYTES)
    try:
        stored, size = sized_json(value)
    except ValueError as error:
        # The error says it all: its traceback would be pages of the encoder's own lines.
        raise ResultError(f"the result of {whose} is not JSON: {error}") from None
    if size > MAX_RESULT_BYTES:
        raise ResultError(
            f"the result of {whose} has {size:,} bytes as JSON, but at most "
            f"{MAX_RESULT_BYTES:,} are stored; store it elsewhere and return a reference to it."
        )
    return CheckedResult(stored, size)


def number_in(value: object, low: float, high: float) -> float | None:
    """Return a number from `low` to `high`, None for everything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if low <= value <= high else None


def checked_number(name: str, value: object, low: float, high: float, rule: str = "") -> float:
    """Return a number from `low` to `high`; else `rule` says what to give instead."""
    number = number_in(value, low, high)
    if number is not None:
        return number
    rule = rule or f"give a number from {low:,} to {high:,}."
    raise InvalidJobError(f"{name} {quoted(value)}: {rule}")


def checked_seconds(name: str, seconds: object) -> float:
    """Return `seconds` as float; raise `InvalidJobError` unless 0 <= seconds <= ten years."""
    rule = f"give seconds from 0 to {MAX_SECONDS:,} (ten years)."
    return checked_number(name, seconds, 0, MAX_SECONDS, rule)


def checked_delay(delay: object, name: str = "delay") -> timedelta:
    """Return how much later than now a job is to run, at most ten years."""
    seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
    rule = f"give seconds from 0 to {MAX_SECONDS:,} (ten years), or a timedelta."
    return timedelta(seconds=checked_number(name, seconds, 0, MAX_SECONDS, rule))


def checked_timeout(timeout: object) -> float:
    """Return the timeout in seconds, above 0 and at most ten years."""
    rule = f"give seconds above 0, {_AT_MOST_TEN_YEARS}"
    return checked_number("timeout", timeout, ABOVE_ZERO, MAX_SECONDS, rule)


def checked_max_timeout(max_timeout: object, timeout: float) -> float | None:
    """Return how long an attempt may take with all its extensions, at least the timeout."""
    if max_timeout is None:
        return None
    rule = f"give seconds, at least the timeout ({timeout:g}) and {_AT_MOST_TEN_YEARS}"
    return checked_number("max_timeout", max_timeout, timeout, MAX_SECONDS, rule)


def checked_extension(seconds: object) -> float:
    """Return by how many seconds a deadline is moved, above 0 and at most ten years."""
    rule = f"give a number above 0, {_AT_MOST_TEN_YEARS}"
    return checked_number("seconds", seconds, ABOVE_ZERO, MAX_SECONDS, rule)


def checked_priority(priority: object) -> int:
    """Return the priority; lower is sooner."""
    if isinstance(priority, int) and number_in(priority, MIN_PRIORITY, MAX_PRIORITY) is not None:
        return int.__int__(priority)
    raise InvalidJobError(
        f"priority {priority!r}: give a whole number from {MIN_PRIORITY:,} to {MAX_PRIORITY:,}; "
        "lower runs sooner."
    )


def checked_message(message: object) -> str:
    """Return the message of a progress report."""
    if isinstance(message, str):
        return str.__str__(message)
    raise InvalidJobError(f"message {quoted(message)}: give text, or leave it out.")


def checked_factor(factor: object) -> Decimal:
    """Return the throttle factor; 0 is critical: not counted and never held by the limit."""
    number = _decimal_of(factor)
    if number.is_finite() and 0 <= number <= MAX_FACTOR:
        rounded = number.quantize(_FACTOR_STEP)
        if rounded == number:
            return rounded
    raise InvalidJobError(
        f"throttle_factor {factor!r}: give a number from 0 to {MAX_FACTOR:,} with at most "
        f"{FACTOR_DECIMALS} decimals."
    )


def _decimal_of(number: object) -> Decimal:
    """Return a number as it is written; NaN for anything else."""
    if isinstance(number, float):
        return Decimal(float.__repr__(number))
    if isinstance(number, int | Decimal) and not isinstance(number, bool):
        return Decimal(number)
    return Decimal("NaN")


def checked_reason(reason: object) -> str:
    """Return why somebody does something, as it is stored."""
    if isinstance(reason, str) and len(reason) <= MAX_REASON_CHARS and is_storable(reason):
        return without_tokens(str.__str__(reason))
    raise InvalidJobError(
        f"reason {quoted(reason)}: give text of at most {MAX_REASON_CHARS:,} characters."
    )


def checked_windows(windows: object) -> list[str]:
    """Return the time windows in the text form that is stored."""
    parsed = parse_windows(windows)  # type: ignore[arg-type]  # it checks them
    return [str(window) for window in parsed]


def checked_zone(name: object) -> str:
    """Return the name of a time zone; '' stands for the project's TIME_ZONE."""
    try:
        if name and isinstance(name, str):
            ZoneInfo(name)
        elif name != "":
            raise ValueError(name)
    except (ValueError, OSError, KeyError) as error:
        raise InvalidJobError(
            f"time zone {name!r} is unknown; give a name such as 'Europe/Paris', or install the "
            "zone data that this machine lacks (pip install tzdata)."
        ) from error
    return str.__str__(name)


def aware_moment(name: str, moment: object) -> datetime:
    """Return an aware datetime from 1970 to 9000 in UTC; raise `InvalidJobError` for anything else.

    In UTC, because in other zones the two passes of a repeated hour count as equal.
    """
    if not isinstance(moment, datetime) or moment.utcoffset() is None:
        raise InvalidJobError(
            f"{name} {moment!r}: give an aware datetime, for example "
            "django.utils.timezone.now() + timedelta(minutes=5)."
        )
    if not _EARLIEST <= moment <= LATEST:
        raise InvalidJobError(f"{name} {moment}: give a moment from 1970 to 9000.")
    moment = moment.astimezone(UTC)
    if type(moment) is datetime:
        return moment
    return datetime.combine(moment.date(), moment.timetz())  # SQLite stores what str() returns


def started(deadline: datetime, timeout: float, extended_seconds: float) -> datetime:
    """Return when an attempt was claimed, calculated from its present deadline."""
    return deadline - timedelta(seconds=timeout + extended_seconds)
