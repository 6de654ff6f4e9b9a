"""Time windows: the times of day at which a job may start, in the local time of a time zone.

An instant is open if the wall clock then shows a time inside a window. Everything follows from
that: when clocks go forward, a window that opens in the skipped hour opens at the first instant
after it, and a window that lies completely in that hour does not open that day; when they go back,
a window in the repeated hour is open both times. Windows that touch or overlap are one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo
from functools import lru_cache

from hipq_django.domain.zones import next_change
from hipq_django.exceptions import InvalidJobError

WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

_TIME_OF_DAY = re.compile(r"(?:[01]\d|2[0-3]):[0-5]\d(?::[0-5]\d)?|24:00(?::00)?", re.ASCII)
_MIDNIGHT, _END_OF_DAY = "00:00", "24:00"
_DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True, order=True, init=False)
class TimeWindow:
    """A span of local time, from `start` (included) to `end` (excluded).

    Times are "HH:MM", "HH:MM:SS" or `datetime.time`; "24:00" is the end of the day, and an end
    before the start is on the next day. `days` are the weekdays on which the window opens, for
    example "mon-fri" or "sat,sun"; empty: every day. All three are kept as their shortest text, so
    that windows that mean the same are equal. Raise `InvalidJobError` for anything else.
    """

    start: str
    end: str
    days: str

    def __init__(self, start: time | str, end: time | str, *, days: str = "") -> None:
        try:
            opens, closes = _span_of_day(start, end)
            opening_days = _shortest_days(days)
        except ValueError as error:
            raise _refused(_text(start, end, days), str(error)) from error
        object.__setattr__(self, "start", opens)
        object.__setattr__(self, "end", closes)
        object.__setattr__(self, "days", opening_days)

    def __str__(self) -> str:
        """Return the text that the database stores and `parse_windows` reads."""
        return _text(self.start, self.end, self.days)

    def contains(self, wall: datetime) -> bool:
        """Return whether a wall clock that shows `wall`, a naive datetime, is in the window."""
        # The texts of times sort as the times do, and "05:00" is not after "05:00:00".
        clock = wall.time().isoformat()
        if self.start < self.end:
            return self.start <= clock < self.end and self._opens_on(wall)
        if clock >= self.start:
            return self._opens_on(wall)
        return clock < self.end and self._opens_on(wall - _DAY)

    def next_start(self, wall: datetime) -> datetime:
        """Return the first start after `wall`, as a wall clock that never jumps would show it."""
        first = datetime.combine(wall, time.fromisoformat(self.start))
        starts = (first + days * _DAY for days in range(len(WEEKDAYS) + 1))
        return next(start for start in starts if start > wall and self._opens_on(start))

    def _opens_on(self, day: datetime) -> bool:
        return not self.days or day.weekday() in _weekdays(self.days)


def parse_windows(values: Sequence[TimeWindow | str]) -> tuple[TimeWindow, ...]:
    """Return the windows of a list of text and `TimeWindow`.

    Text is "05:00-07:00", with seconds if wanted, or "mon-fri 22:00-02:00". Raise
    `InvalidJobError` for anything else.
    """
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise InvalidJobError(f"time windows {values!r}: give a list, for example ['22:00-02:00'].")
    return tuple(_parsed(value) for value in values)


def is_open(windows: Sequence[TimeWindow], moment: datetime, zone: tzinfo) -> bool:
    """Return whether `moment`, an aware one, lies in a window, by the wall clock of `zone`."""
    return _contain(windows, _wall_clock(moment, zone))


def next_opening(windows: Sequence[TimeWindow], moment: datetime, zone: tzinfo) -> datetime:
    """Return the first instant at or after `moment`, an aware one, that lies in a window, in UTC.

    There is a window at least. Days may last 23 or 25 hours in `zone`, or be missing.
    """
    instant = moment.astimezone(UTC)
    while not _contain(windows, wall := _wall_clock(instant, zone)):
        opening = instant + (min(window.next_start(wall) for window in windows) - wall)
        instant = min(next_change(instant, zone) or opening, opening)
    return instant


# Reading windows


def _parsed(value: object) -> TimeWindow:
    if isinstance(value, TimeWindow):
        return value
    if not isinstance(value, str):
        raise _refused(value, "not a text or a TimeWindow")
    *days, hours = value.split() or [""]
    start, dash, end = hours.partition("-")
    if not dash:
        raise _refused(value, "not two times of day with a dash between them")
    return TimeWindow(start, end, days=" ".join(days))


def _refused(value: object, rule: str) -> InvalidJobError:
    return InvalidJobError(
        f"time window {value!r}: {rule}, "
        'write "HH:MM-HH:MM", for example "22:00-02:00" or "mon-fri 22:00-02:00".'
    )


def _text(start: object, end: object, days: object) -> str:
    return f"{days} {start}-{end}" if days else f"{start}-{end}"


# Times of day


def _span_of_day(start: object, end: object) -> tuple[str, str]:
    opens, closes = _time_of_day(start), _time_of_day(end)
    if opens == _END_OF_DAY:
        raise ValueError("24:00 can be an end only")
    if opens == closes:
        raise ValueError('start and end are the same (the whole day is "00:00-24:00")')
    return opens, _END_OF_DAY if closes == _MIDNIGHT else closes


def _time_of_day(value: object) -> str:
    text = value.isoformat() if isinstance(value, time) else value
    if not isinstance(text, str) or not _TIME_OF_DAY.fullmatch(text):
        raise ValueError(f"{value!r} is not a time of day")
    return text.removesuffix(":00") if len(text) == len("HH:MM:SS") else text


# Weekdays


def _shortest_days(days: object) -> str:
    if not isinstance(days, str):
        raise ValueError(f"{days!r} is not a text of weekdays")
    chosen = _weekdays(days) if days.strip() else frozenset()
    starts = [day for day in range(len(WEEKDAYS)) if day in chosen and (day - 1) % 7 not in chosen]
    return ",".join(_run_of_days(start, chosen) for start in starts)


def _run_of_days(start: int, chosen: frozenset[int]) -> str:
    length = next(length for length in range(1, 8) if (start + length) % 7 not in chosen)
    first, last = WEEKDAYS[start], WEEKDAYS[(start + length - 1) % 7]
    if length == 1:
        return first
    return f"{first},{last}" if length == 2 else f"{first}-{last}"


@lru_cache(maxsize=256)  # Claims ask this for each job; there are at most 127 shortest texts.
def _weekdays(days: str) -> frozenset[int]:
    return frozenset(day for part in days.split(",") for day in _range_of_days(part))


def _range_of_days(part: str) -> list[int]:
    first, dash, last = part.partition("-")
    start = _weekday(first)
    distance = (_weekday(last) - start) % 7 if dash else 0
    return [(start + days) % 7 for days in range(distance + 1)]


def _weekday(name: str) -> int:
    try:
        return WEEKDAYS.index(name.strip().lower())
    except ValueError:
        raise ValueError(f"{name.strip()!r} is not one of {', '.join(WEEKDAYS)}") from None


# Instants


def _wall_clock(instant: datetime, zone: tzinfo) -> datetime:
    return instant.astimezone(zone).replace(tzinfo=None)


def _contain(windows: Sequence[TimeWindow], wall: datetime) -> bool:
    return any(window.contains(wall) for window in windows)
