"""Which seconds and moments are accepted. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from hipq_django.exceptions import InvalidJobError

MAX_SECONDS: Final = 10 * 366 * 86_400
"""The longest timeout and delay: ten years, so that every moment stays representable."""

_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime(9000, 1, 1, tzinfo=UTC)


def checked_seconds(name: str, seconds: object) -> float:
    """Return `seconds` as float; raise `InvalidJobError` unless 0 <= seconds <= ten years."""
    number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if number and 0 <= seconds <= MAX_SECONDS:  # type: ignore[operator]
        return float(seconds)  # type: ignore[arg-type]
    raise InvalidJobError(
        f"{name}({seconds!r}): seconds must be a number from 0 to {MAX_SECONDS:,} (ten years)."
    )


def aware_moment(name: str, moment: object) -> datetime:
    """Return an aware datetime from 1970 to 9000; raise `InvalidJobError` for anything else."""
    if not isinstance(moment, datetime):
        raise InvalidJobError(
            f"{name} {moment!r}: give an aware datetime, for example "
            "django.utils.timezone.now() + timedelta(minutes=5)."
        )
    if moment.utcoffset() is None:
        raise InvalidJobError(
            f"{name} {moment!r} is naive; give an aware datetime, for example "
            "django.utils.timezone.make_aware(…)."
        )
    if not _EARLIEST <= moment <= _LATEST:
        raise InvalidJobError(f"{name} {moment}: give a moment from 1970 to 9000.")
    return moment


def started(deadline: datetime, timeout: float, extended_seconds: float) -> datetime:
    """Return when an attempt was claimed, by the deadline that it has now."""
    return deadline - timedelta(seconds=timeout + extended_seconds)
