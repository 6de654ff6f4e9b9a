"""When a schedule is due, and what is to be made of due times that have passed. Pure.

Rules of daylight saving time, as Debian's cron has them: a text whose minute or hour begins with
`*` is in real time, both passes of the repeated hour and nothing in the skipped one, and so is one
of six fields whose second is not a single number. All others are at fixed times: what falls into
the skipped hour is due once, at the first moment after it, and what falls into the repeated hour at
its first pass.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cached_property
from itertools import islice, takewhile
from typing import Any, Final, Literal, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from hipq_django.domain.validation import (
    LATEST,
    MAX_SECONDS,
    aware_moment,
    checked_number,
    checked_zone,
)
from hipq_django.domain.zones import last_change, next_change, offset_at
from hipq_django.exceptions import InvalidJobError, InvalidScheduleError, nearest_name

OVERLAPS: Final = ("skip", "allow", "wait", "replace")
CATCH_UPS: Final = ("none", "last", "all")

ON_TIME: Final = timedelta(seconds=60)
"""How late a due time may be found that is not caught up."""

MOST_AT_ONCE: Final = 1_000
"""How many due times are caught up in one look."""

MOST_COUNTED: Final = 10_001
"""Due times that are skipped are counted up to this number."""

MAX_CRON_CHARS: Final = 200
MAX_NAME_CHARS: Final = 200

MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

ClockChange = Literal["", "skipped", "repeated"]
"""Whether the clocks skip the hour of a due time, which is due after it, or pass it twice, when it
is due at the first pass."""

_FIELDS = "minute hour day month weekday"
_SIX_FIELDS = f"second {_FIELDS}"
_BACK = timedelta(hours=3)
"""More than any clock is set back; searches of local times begin this much earlier."""

_SECOND = timedelta(seconds=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Spec:
    """What `Cron` and `Every` share."""

    overlap: str
    catch_up: str
    catch_up_seconds: float
    jitter: float
    start_time: datetime | None
    end_time: datetime | None

    def _check_shared(self, what: str) -> None:
        _check_known(what, "overlap", self.overlap, OVERLAPS)
        _check_known(what, "catch_up", self.catch_up, CATCH_UPS)
        try:
            checked_number("catch_up_seconds", self.catch_up_seconds, 0, MAX_SECONDS)
            checked_number("jitter", self.jitter, 0, 86_400, "give seconds from 0 to 86,400.")
            aware_moment("start_time", self.start_time or _EPOCH)
            aware_moment("end_time", self.end_time or _EPOCH)
        except InvalidJobError as error:
            raise InvalidScheduleError(f"{what}: {error}") from error
        if self.start_time and self.end_time and self.end_time < self.start_time:
            raise InvalidScheduleError(
                f"{what}: end_time {self.end_time} is before start_time {self.start_time}."
            )

    @property
    def window(self) -> timedelta:
        """How late a due time is caught up: what is found on time always is."""
        return max(ON_TIME, timedelta(seconds=self.catch_up_seconds))

    def _after(self, moment: datetime) -> Iterator[datetime]:
        """Yield the moments after this one, in UTC, without regard to start and end."""
        raise NotImplementedError

    def _before(self, moment: datetime) -> Iterator[datetime]:
        """Yield the moments up to this one, in UTC, the latest first."""
        raise NotImplementedError

    def next(self, after: datetime) -> datetime | None:
        """Return the first due time after this moment, in UTC; None where there is none."""
        return next(self.due_times(after), None)

    def due_times(self, after: datetime) -> Iterator[datetime]:
        """Yield the due times after this moment, in UTC, as far as they can be stored."""
        after = after.astimezone(UTC)  # local times have no order where clocks are set back
        if self.start_time is not None:
            after = max(after, self.start_time.astimezone(UTC) - timedelta(microseconds=1))
        end = self.end_time or LATEST
        for moment in self._after(after):
            if moment > end:
                return
            yield moment

    def due_from(self, first: datetime) -> Iterator[datetime]:
        """Yield the due times from this moment on, in UTC."""
        return self.due_times(first.astimezone(UTC) - timedelta(microseconds=1))

    def last(self, at: datetime) -> datetime | None:
        """Return the last due time up to this moment, in UTC; None where there was none."""
        at = at.astimezone(UTC)
        if self.end_time is not None:
            at = min(at, self.end_time.astimezone(UTC))
        found = next(self._before(at), None)
        if found is None or (self.start_time is not None and found < self.start_time):
            return None
        return found

    def count(self, first: datetime, until: datetime) -> int:
        """Return how many due times there are from `first`, which is one, until `until`."""
        counted = 0
        for moment in islice(self.due_from(first), MOST_COUNTED):
            if moment > until:
                break
            counted += 1
        return counted

    def upcoming(self, after: datetime, count: int = 5) -> list[datetime]:
        """Return the next due times after a moment, in the zone of the schedule."""
        try:
            aware_moment("upcoming after", after)
        except InvalidJobError as error:
            raise InvalidScheduleError(str(error)) from error
        return [self.shown(moment) for moment in islice(self.due_times(after), count)]

    def shown(self, moment: datetime) -> datetime:
        """Return a due time as it is given to jobs and shown to people."""
        return moment

    def clock_change(self, moment: datetime) -> ClockChange:
        """Return what a change of the clocks does to a due time."""
        return ""


def _check_known(what: str, name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        near = nearest_name(str(value), known)
        raise InvalidScheduleError(f"{what}: {name}={value!r:.100} is unknown{near}")


@dataclass(frozen=True, kw_only=True)
class Every(_Spec):
    """Due at a fixed interval of real time: clock changes do not shift it.

    Counted from `start_time`, else from 1970. The other options are those of `Cron`.
    """

    days: float = 0
    hours: float = 0
    minutes: float = 0
    seconds: float = 0
    overlap: str = "skip"
    catch_up: str = "last"
    catch_up_seconds: float = 86_400
    jitter: float = 0
    start_time: datetime | None = None
    end_time: datetime | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.every_seconds <= MAX_SECONDS:
            raise InvalidScheduleError(
                f"Every(days={self.days!r}, hours={self.hours!r}, minutes={self.minutes!r}, "
                f"seconds={self.seconds!r}): give numbers that are 1 second together at least, and "
                "at most ten years."
            )
        self._check_shared(str(self))

    def __str__(self) -> str:
        return f"every {timedelta(seconds=self.every_seconds)}"

    @property
    def every_seconds(self) -> float:
        """The seconds from one due time to the next."""
        return self.days * 86_400 + self.hours * 3_600 + self.minutes * 60 + self.seconds

    @property
    def _step(self) -> timedelta:
        return timedelta(seconds=self.every_seconds)

    @property
    def _origin(self) -> datetime:
        return _EPOCH if self.start_time is None else self.start_time.astimezone(UTC)

    def _after(self, moment: datetime) -> Iterator[datetime]:
        number = (moment - self._origin) // self._step + 1
        while True:
            yield self._origin + number * self._step
            number += 1

    def _before(self, moment: datetime) -> Iterator[datetime]:
        number = (moment - self._origin) // self._step
        while True:
            yield self._origin + number * self._step
            number -= 1

    def count(self, first: datetime, until: datetime) -> int:
        """Return how many due times there are, exactly."""
        return max(0, (until - first) // self._step + 1)


@dataclass(frozen=True)
class Cron(_Spec):
    """Due by a line of cron: five fields, minute hour day month weekday, or six, seconds first.

    `zone` is the name of a time zone, else the project's. `overlap` says what happens to a due time
    while a job of the schedule is live: "skip" it, "allow" both jobs, "wait" for the end of that
    job, or "replace" it. `catch_up` says what happens to due times of the last `catch_up_seconds`,
    a minute at least, that nobody saw: run the "last" one, "none", or "all". `jitter` delays the
    jobs by up to so many seconds, always the same for the name of a schedule. `start_time` and
    `end_time` are inclusive.
    """

    text: str
    zone: str = ""
    overlap: str = "skip"
    catch_up: str = "last"
    catch_up_seconds: float = 86_400
    jitter: float = 0
    start_time: datetime | None = None
    end_time: datetime | None = None

    def __post_init__(self) -> None:
        what = f"Cron({self.text!r:.200})"
        try:
            checked_zone(self.zone)
        except InvalidJobError as error:
            raise InvalidScheduleError(f"{what}: {error}") from error
        if len(self.text) > MAX_CRON_CHARS:
            raise InvalidScheduleError(
                f"{what}: the text has {len(self.text)} characters, and at most {MAX_CRON_CHARS} "
                "are stored; use ranges and steps, or make several schedules of it."
            )
        self._check_text(what)
        self._check_shared(what)

    def _check_text(self, what: str) -> None:
        try:
            CronSim(self._expression, datetime(2024, 1, 1))  # noqa: DTZ001 - a wall clock
        except CronSimError as error:
            problem = str(error)
            said = problem[:1].lower() + problem[1:]
            raise InvalidScheduleError(f"{what}: {said}. Fields: {self._fields}.") from error

    def __str__(self) -> str:
        return f"{self.text} {self.zone}".strip()

    @property
    def _expression(self) -> str:
        text = self.text.strip()
        return MACROS.get(text.lower(), text)

    @property
    def _fields(self) -> str:
        has_seconds = len(self._expression.split()) == len(_SIX_FIELDS.split())
        return _SIX_FIELDS if has_seconds else _FIELDS

    @cached_property
    def is_in_real_time(self) -> bool:
        """Whether it follows the real time where clocks change, and not the wall clock."""
        parts = self._expression.split()
        if self._fields is _SIX_FIELDS:
            if not parts[0].isdigit():
                return True
            parts = parts[1:]
        return parts[0].startswith("*") or parts[1].startswith("*")

    @property
    def tz(self) -> tzinfo:
        """The time zone; that of the project where none is given."""
        return _zone(self.zone)

    @property
    def explanation(self) -> str:
        """The times in words, in English: "At 02:30 every day"."""
        start = datetime(2024, 1, 1)  # noqa: DTZ001 - a wall clock
        return CronSim(self._expression, start).explain()

    def shown(self, moment: datetime) -> datetime:
        return moment.astimezone(self.tz)

    def clock_change(self, moment: datetime) -> ClockChange:
        """Return what a change of the clocks does to a due time: only fixed times are moved."""
        if self.is_in_real_time:
            return ""
        if not self._matches(moment.astimezone(UTC)):
            return "skipped"
        local = moment.astimezone(self.tz)
        comes_twice = local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset()
        return "repeated" if comes_twice else ""

    def _after(self, moment: datetime) -> Iterator[datetime]:
        in_real_time = self.is_in_real_time
        moments = self._real(moment) if in_real_time else self._fixed(moment, reverse=False)
        yield from (found for found in moments if found > moment)

    def _before(self, moment: datetime) -> Iterator[datetime]:
        in_real_time = self.is_in_real_time
        moments = self._real_back(moment) if in_real_time else self._fixed(moment, reverse=True)
        yield from (found for found in moments if found <= moment)

    # At fixed times: the walls are gone through, and each has one moment.

    def _fixed(self, moment: datetime, *, reverse: bool) -> Iterator[datetime]:
        wall = moment.astimezone(self.tz).replace(tzinfo=None)
        start = wall + _BACK if reverse else wall - _BACK
        last = None
        for wall in CronSim(self._expression, start, reverse=reverse):
            found = _moment_of(wall, self.tz)
            if found != last:  # several in one gap are one due time
                yield found
            last = found

    # In real time: between two changes of the clock the wall is so much ahead of UTC.

    def _real(self, moment: datetime) -> Iterator[datetime]:
        while True:
            offset, change = offset_at(moment, self.tz), next_change(moment, self.tz)
            wall = (moment + offset).replace(tzinfo=None)
            for found in CronSim(self._expression, wall):
                at = found.replace(tzinfo=UTC) - offset
                if change is not None and at >= change:
                    break
                yield at
            else:
                return
            if self._matches(change):
                yield change
            moment = change

    def _real_back(self, moment: datetime) -> Iterator[datetime]:
        while True:
            offset, change = offset_at(moment, self.tz), last_change(moment, self.tz)
            wall = (moment + offset).replace(tzinfo=None) + _SECOND
            for found in CronSim(self._expression, wall.replace(microsecond=0), reverse=True):
                at = found.replace(tzinfo=UTC) - offset
                if change is not None and at < change:
                    break
                yield at
            else:
                return
            moment = change - timedelta(microseconds=1)

    def _matches(self, moment: datetime) -> bool:
        wall = (moment + offset_at(moment, self.tz)).replace(tzinfo=None)
        return next(CronSim(self._expression, wall - _SECOND)) == wall


def _zone(name: str) -> tzinfo:
    if name:
        return ZoneInfo(name)
    from django.utils import timezone

    return timezone.get_default_timezone()


def _moment_of(wall: datetime, zone: tzinfo) -> datetime:
    """Return the moment of a wall clock: the first pass, or the first one after a gap."""
    aware = wall.replace(tzinfo=zone)
    moment = aware.astimezone(UTC)
    if moment.astimezone(zone).replace(tzinfo=None) == wall:
        return moment
    # In a gap the wall is read with the offset before it, which leads to a moment after it.
    change = last_change(moment, zone)
    return moment if change is None else change


# What is made of due times that have come


class Missed(NamedTuple):
    """Due times that no job is made of: the first, the last, and how many."""

    first: datetime
    until: datetime
    number: int


class Plan(NamedTuple):
    """What one look at a schedule makes of the due times that have come, and the next one."""

    fire: tuple[datetime, ...]
    missed: Missed | None
    next_time: datetime | None
    in_turn: bool = False
    """Whether what is fired is caught up: one job after the other, and `skip` takes none."""


def plan(spec: Cron | Every, due: datetime, now: datetime) -> Plan:
    """Return what is to be made of the due times from `due`, the first one, until `now`."""
    newest = spec.last(now)
    if newest is None or newest < due:
        newest = due
    if spec.catch_up == "all":
        return _all(spec, due, newest, now)
    window = spec.window if spec.catch_up == "last" else ON_TIME
    upcoming = spec.next(now)
    if now - newest > window:
        return Plan((), Missed(due, newest, spec.count(due, newest)), upcoming)
    if newest == due:  # as nearly always
        return Plan((newest,), None, upcoming)
    before = spec.last(newest - timedelta(microseconds=1))
    if before is None or before < due:
        return Plan((newest,), None, upcoming)
    return Plan((newest,), Missed(due, before, spec.count(due, before)), upcoming)


def _all(spec: Cron | Every, due: datetime, newest: datetime, now: datetime) -> Plan:
    first = now - spec.window
    missed = None
    if due < first:
        last = spec.last(first - timedelta(microseconds=1))
        if last is not None and last >= due:
            missed = Missed(due, last, spec.count(due, last))
    come = takewhile(lambda at: at <= newest, spec.due_from(max(due, first)))
    found = tuple(islice(come, MOST_AT_ONCE + 2))
    # No single one is left for the next look, which could not tell that it is caught up.
    fire = found[: MOST_AT_ONCE - 1 if len(found) == MOST_AT_ONCE + 1 else MOST_AT_ONCE]
    in_turn = len(fire) > 1 or now - newest > ON_TIME
    return Plan(fire, missed, spec.next(fire[-1] if fire else now), in_turn)


def passed_over(spec: Cron | Every | None, due: datetime, now: datetime) -> Missed:
    """Return the due times from `due`, the first one, until `now`, of which no job is made.

    Without a spec, because the row could not be read, nobody knows of more than the first one.
    """
    last = (spec and spec.last(now)) or due
    if spec is None or last <= due:
        return Missed(due, due, 1)
    return Missed(due, last, spec.count(due, last))


def in_zone(moment: datetime, zone: str) -> datetime:
    """Return a due time in a time zone, and in the project's where that is '' or unknown."""
    try:
        return moment.astimezone(_zone(zone))
    except (ValueError, OSError, ZoneInfoNotFoundError):  # the zone has vanished since
        return moment.astimezone(_zone(""))


def jitter_of(name: str, seconds: float) -> timedelta:
    """Return by how much the jobs of a schedule are put off: the same each time."""
    return timedelta(seconds=zlib.crc32(name.encode()) / 2**32 * seconds)


def values_of(spec: Cron | Every) -> dict[str, Any]:
    """Return the values of a spec as they are stored, so that they compare with those of rows."""
    shared = {name: getattr(spec, name) for name in SHARED}
    for name in ("start_time", "end_time"):
        shared[name] = shared[name] and shared[name].astimezone(UTC)
    if isinstance(spec, Cron):
        return {"cron": spec.text, "time_zone": spec.zone, "every_seconds": None, **shared}
    return {"cron": "", "time_zone": "", "every_seconds": float(spec.every_seconds), **shared}


def checked_schedule_name(name: object) -> str:
    """Return the name of a schedule; raise `InvalidScheduleError` unless it is one."""
    if isinstance(name, str) and 0 < len(name) <= MAX_NAME_CHARS and name.isprintable():
        return str.__str__(name)
    raise InvalidScheduleError(
        f"schedule name {name!r:.100}: give text of 1 to {MAX_NAME_CHARS} printable characters."
    )


def spec_of(given: object) -> Cron | Every:
    """Return a spec; a text alone is a `Cron`."""
    if isinstance(given, str):
        return Cron(given)
    if isinstance(given, Cron | Every):
        return given
    raise InvalidScheduleError(  # else a declaration would fail only in a worker
        f"schedule {given!r:.100}: give a text of cron, hipq.Cron(…) or hipq.Every(…)."
    )


SHARED: Final = ("overlap", "catch_up", "catch_up_seconds", "jitter", "start_time", "end_time")
