"""When schedules are due, held against an oracle; and what is made of late due times."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise, takewhile
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.test import override_settings
from hypothesis import given, strategies as st

from hipq_django.domain.schedules import (
    Cron,
    Every,
    Missed,
    Plan,
    in_zone,
    jitter_of,
    passed_over,
    plan,
)
from hipq_django.domain.validation import aware_moment
from hipq_django.exceptions import InvalidScheduleError

ZONES = [
    "Europe/Paris",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
    "Africa/Casablanca",
]
START = datetime(2024, 1, 1, tzinfo=UTC)
NAN = float("nan")
NAIVE = datetime(2025, 1, 1)  # noqa: DTZ001 - it is refused
QUARTER, MINUTE = timedelta(minutes=15), timedelta(minutes=1)


# The oracle: every minute of some years, by the rules as they are written, without cronsim. Clocks
# change at quarters of an hour, so one look at the zone serves for fifteen minutes.


Quarters = list[tuple[datetime, datetime]]
"""The quarters of an hour: the moment, and what the clock on the wall shows."""


def quarters(zone: str, end: datetime) -> Quarters:
    tz, found, at = ZoneInfo(zone), [], START - timedelta(days=1)
    while at < end + timedelta(days=1):
        found.append((at, at.astimezone(tz).replace(tzinfo=None)))
        at += QUARTER
    return found


Match = Callable[[datetime], bool]
"""Whether a quarter of an hour may have matching minutes, by all but the minutes."""


def real(shown: Quarters, minutes: range, match: Match) -> Iterator[datetime]:
    for at, wall in shown:
        if match(wall):
            yield from _minutes(at, wall, minutes)


def fixed(shown: Quarters, minutes: range, match: Match) -> Iterator[datetime]:
    first: dict[datetime, datetime] = {}
    for at, wall in shown:
        first.setdefault(wall, at)
    walls = sorted(first)
    wall = walls[0]
    while wall <= walls[-1]:
        if match(wall):
            if wall in first:
                yield from _minutes(first[wall], wall, minutes)
            elif any(_minutes(START, wall, minutes)):  # the clock never shows it
                yield first[walls[bisect_right(walls, wall)]]
        wall += QUARTER


def _minutes(at: datetime, wall: datetime, minutes: range) -> list[datetime]:
    return [at + n * MINUTE for n in range(15) if (wall + n * MINUTE).minute in minutes]


Oracle = Callable[[Quarters, range, Match], Iterator[datetime]]

TEXTS: dict[str, tuple[range, Match, Oracle]] = {
    "30 2 * * *": (range(30, 31), lambda w: w.hour == 2, fixed),
    "0 2 * * *": (range(1), lambda w: w.hour == 2, fixed),
    "0,30 1-3 * * *": (range(0, 31, 30), lambda w: 1 <= w.hour <= 3, fixed),
    "15 0 1 * *": (range(15, 16), lambda w: (w.day, w.hour) == (1, 0), fixed),
    "45 2 * * 0": (range(45, 46), lambda w: w.hour == 2 and w.weekday() == 6, fixed),
    "10 4 1,15 * 1": (
        range(10, 11),
        lambda w: w.hour == 4 and (w.day in (1, 15) or w.weekday() == 0),
        fixed,
    ),
    "*/20 1-3 * * *": (range(0, 60, 20), lambda w: 1 <= w.hour <= 3, real),
    "*/30 2 * * *": (range(0, 60, 30), lambda w: w.hour == 2, real),
    "5 */6 * * *": (range(5, 6), lambda w: w.hour % 6 == 0, real),
    "7 * * 3,10 *": (range(7, 8), lambda w: w.month in (3, 10), real),
}


def is_change(tz: ZoneInfo, *moments: datetime) -> bool:
    return len({moment.astimezone(tz).utcoffset() for moment in moments}) > 1


@pytest.mark.parametrize(
    ("zones", "years"),
    [
        (["Europe/Paris", "Australia/Lord_Howe"], 1),
        pytest.param(ZONES, 7, marks=pytest.mark.nightly),
    ],
    ids=["a year", "seven years"],
)
def test_due_times_are_those_of_the_oracle(zones: list[str], years: int) -> None:
    end = START.replace(year=START.year + years)
    wrong = []
    for zone in zones:
        tz, shown = ZoneInfo(zone), quarters(zone, end)
        for text, (minutes, match, oracle) in TEXTS.items():
            expected = sorted({at for at in oracle(shown, minutes, match) if START <= at < end})
            spec = Cron(text, zone)
            due = spec.due_times(START - timedelta(seconds=1))
            if list(takewhile(lambda at: at < end, due)) != expected:
                wrong.append((zone, text))
            pairs = list(pairwise(expected))
            for before, at in pairs[::97] + [pair for pair in pairs if is_change(tz, *pair)]:
                assert spec.next(at - MINUTE / 2) == at
                assert spec.last(at + timedelta(microseconds=1)) == at
                assert spec.last(at - timedelta(microseconds=1)) == before

    assert not wrong


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc, arg-type]  # as many as there are


@pytest.mark.parametrize(
    ("text", "zone", "after", "expected"),
    [
        # Paris goes from 02:00 to 03:00 on 31 March 2024 at 01:00 UTC.
        ("30 2 * * *", "Europe/Paris", utc(2024, 3, 30, 12), utc(2024, 3, 31, 1)),
        ("0 */1 * * *", "Europe/Paris", utc(2024, 3, 31, 0), utc(2024, 3, 31, 1)),
        # And from 03:00 back to 02:00 on 27 October 2024 at 01:00 UTC.
        ("30 2 * * *", "Europe/Paris", utc(2024, 10, 26, 12), utc(2024, 10, 27, 0, 30)),
        ("30 2 * * *", "Europe/Paris", utc(2024, 10, 27, 0, 30), utc(2024, 10, 28, 1, 30)),
        ("30 2 * * *", "Europe/Paris", utc(2024, 10, 27, 1, 15), utc(2024, 10, 28, 1, 30)),
        ("30 * * * *", "Europe/Paris", utc(2024, 10, 27, 0, 30), utc(2024, 10, 27, 1, 30)),
        # Lord Howe goes back by half an hour, from 02:00 to 01:30, on 7 April 2024 at 15:00 UTC.
        ("45 1 * * *", "Australia/Lord_Howe", utc(2024, 4, 6, 10), utc(2024, 4, 6, 14, 45)),
        ("45 1 * * *", "Australia/Lord_Howe", utc(2024, 4, 6, 14, 45), utc(2024, 4, 7, 15, 15)),
        # Six fields, one number of seconds: as the other five; else in real time.
        ("5 30 2 * * *", "Europe/Paris", utc(2024, 10, 27, 0, 30, 5), utc(2024, 10, 28, 1, 30, 5)),
        ("*/30 30 2 * * *", "Europe/Paris", utc(2024, 10, 27, 1), utc(2024, 10, 27, 1, 30)),
        ("@hourly", "", utc(2024, 1, 1), utc(2024, 1, 1, 1)),
        ("@yearly", "Asia/Kolkata", utc(2024, 1, 1), utc(2024, 12, 31, 18, 30)),
        ("0 0 29 2 *", "", utc(2025, 1, 1), utc(2028, 2, 29)),
        ("0 0 L * *", "", utc(2025, 2, 1), utc(2025, 2, 28)),
        ("0 9 * * MON#2", "", utc(2025, 1, 1), utc(2025, 1, 13, 9)),
    ],
)
def test_the_next_due_time(text: str, zone: str, after: datetime, expected: datetime) -> None:
    assert Cron(text, zone or "UTC").next(after) == expected


def test_upcoming_times_are_shown_in_the_zone_of_the_schedule() -> None:
    times = Cron("0 8 * * mon-fri", "Europe/Paris").upcoming(utc(2024, 3, 29, 12), 2)

    assert [str(at) for at in times] == ["2024-04-01 08:00:00+02:00", "2024-04-02 08:00:00+02:00"]


@pytest.mark.parametrize(
    "spec", [Every(days=1_000), Cron("0 0 29 2 *", "UTC"), Cron("0 */6 1 1 *", "Asia/Tokyo")]
)
def test_there_are_no_due_times_that_cannot_be_stored(spec: Cron | Every) -> None:
    times = spec.upcoming(utc(8990, 1, 1), 1_000)

    assert times[-1] == aware_moment("a due time", times[-1])
    assert times[-1] > utc(8995, 1, 1)


MOMENTS = st.datetimes(NAIVE.replace(1980), NAIVE.replace(2100), timezones=st.just(UTC))


@given(
    st.integers(1, 10**6),
    MOMENTS,
    MOMENTS,
)
def test_every_so_many_seconds(seconds: int, start: datetime, at: datetime) -> None:
    spec = Every(seconds=seconds, start_time=start)
    following, last = spec.next(at), spec.last(at)

    assert following is not None
    assert following > at
    assert following >= start
    assert (following - start) % timedelta(seconds=seconds) == timedelta(0)
    if last is None:
        assert following == start > at
    else:
        assert last <= at < following == last + timedelta(seconds=seconds)
        assert spec.count(start, last) == (last - start) // timedelta(seconds=seconds) + 1


def test_start_and_end_are_inclusive() -> None:
    start, end = utc(2025, 1, 1, 12), utc(2025, 1, 1, 14)
    for spec in (
        Cron("0 * * * *", "UTC", start_time=start, end_time=end),
        Every(hours=1, start_time=start, end_time=end),
    ):
        assert spec.upcoming(utc(2024, 1, 1)) == [start, utc(2025, 1, 1, 13), end]
        assert spec.next(end) is None
        assert spec.last(utc(2026, 1, 1)) == end
        assert spec.last(start) == start
        assert spec.last(start - MINUTE) is None


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: Cron("61 * * * *"),
            "Cron('61 * * * *'): bad minute. Fields: minute hour day month weekday.",
        ),
        (
            lambda: Cron("0 61 * * * *"),
            "bad minute. Fields: second minute hour day month weekday.",
        ),
        (lambda: Cron("@dayly"), "Cron('@dayly'): wrong number of fields. Fields: minute"),
        (lambda: Cron("0 2 ? * 1"), "Cron('0 2 ? * 1'): bad day-of-month. Fields: minute"),
        (
            lambda: Cron(f"{','.join(map(str, range(60)))} {','.join(map(str, range(24)))} * * *"),
            "the text has 237 characters, and at most 200 are stored; use ranges and steps",
        ),
        (lambda: Cron("* * * * *", "Europe/Pari"), "time zone 'Europe/Pari' is unknown"),
        (lambda: Cron("* * * * *", overlap="skp"), "overlap='skp' is unknown, did you mean"),
        (lambda: Cron("* * * * *", jitter=-1), "jitter -1: give seconds from 0"),
        (lambda: Cron("* * * * *", catch_up_seconds=NAN), "catch_up_seconds nan: give"),
        (lambda: Cron("* * * * *", start_time=NAIVE), "give an aware datetime"),
        (
            lambda: Every(hours=1, start_time=utc(2025, 1, 2), end_time=utc(2025, 1, 1)),
            "end_time 2025-01-01 00:00:00+00:00 is before start_time",
        ),
        (lambda: Every(minutes=1).upcoming(NAIVE), "upcoming after"),
        (Every, "Every(days=0, hours=0, minutes=0, seconds=0): give numbers"),
        (lambda: Every(seconds=0.5), "1 second together at least"),
        (lambda: Every(days=10**9), "at most ten years"),
    ],
)
def test_what_is_no_schedule_is_refused(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(InvalidScheduleError) as raised:
        make()

    assert said in str(raised.value)


# Late


@pytest.mark.parametrize("catch_up", ["none", "last", "all"])
@pytest.mark.parametrize("seconds", [0, 5])
@pytest.mark.parametrize("late", [0.4, 59.0])
def test_what_is_found_within_a_minute_is_on_time(
    catch_up: str, seconds: float, late: float
) -> None:
    """However short the time is in which due times are caught up: no look is at once."""
    spec = Cron("0 * * * *", "UTC", catch_up=catch_up, catch_up_seconds=seconds)

    found = plan(spec, NOON, NOON + timedelta(seconds=late))
    assert (found.fire, found.missed) == ((NOON,), None)
    found = plan(spec, NOON, NOON + timedelta(seconds=61))
    assert (found.fire, found.missed) == ((), Missed(NOON, NOON, 1))


HOURLY = {"none": Cron("0 * * * *", "UTC", catch_up="none")}
HOURLY |= {name: Cron("0 * * * *", "UTC", catch_up=name) for name in ("last", "all")}
NOON = utc(2025, 1, 10, 12)


def hours(*given: int) -> tuple[datetime, ...]:
    return tuple(NOON + timedelta(hours=hour) for hour in given)


@pytest.mark.parametrize(
    ("catch_up", "now", "fire", "missed"),
    [
        ("none", NOON, hours(0), None),
        ("none", NOON + MINUTE, hours(0), None),
        ("none", NOON + 2 * MINUTE, (), Missed(NOON, NOON, 1)),
        ("none", NOON + timedelta(hours=2), hours(2), Missed(NOON, hours(1)[0], 2)),
        ("last", NOON + 59 * MINUTE, hours(0), None),
        ("last", NOON + timedelta(hours=3, minutes=5), hours(3), Missed(NOON, hours(2)[0], 3)),
        ("all", NOON + timedelta(hours=3, minutes=5), hours(0, 1, 2, 3), None),
        (
            "all",
            NOON + timedelta(hours=26, minutes=30),
            hours(*range(3, 27)),
            Missed(NOON, hours(2)[0], 3),
        ),
    ],
)
def test_what_is_made_of_late_due_times(
    catch_up: str, now: datetime, fire: tuple[datetime, ...], missed: Missed | None
) -> None:
    found = plan(HOURLY[catch_up], NOON, now)

    assert found == Plan(fire, missed, found.next_time, in_turn=catch_up == "all")
    assert found.next_time == HOURLY[catch_up].next(now)


def test_what_lies_outside_the_window_is_missed_the_newest_included() -> None:
    yearly = Cron("0 0 1 1 *", "UTC")

    found = plan(yearly, utc(2023, 1, 1), utc(2025, 2, 1))

    assert found == Plan((), Missed(utc(2023, 1, 1), utc(2025, 1, 1), 3), utc(2026, 1, 1))


def test_two_weeks_of_every_second_are_one_job() -> None:
    spec = Cron("* * * * * *", "UTC")
    now = NOON + timedelta(days=14)

    found = plan(spec, NOON, now)

    assert found.fire == (now,)
    assert found.missed == Missed(NOON, now - timedelta(seconds=1), 10_001)
    exact = plan(Every(seconds=1), NOON, now)
    assert exact.missed == Missed(NOON, now - timedelta(seconds=1), 14 * 86_400)


@pytest.mark.parametrize("number", [1_000, 1_001, 1_002, 2_001])
def test_what_is_left_for_the_next_look_is_seen_to_be_caught_up(number: int) -> None:
    """A single one would look like one that is due just now, which a live job lets skip."""
    spec, now, due = Every(seconds=1, catch_up="all"), NOON + timedelta(seconds=number - 1), NOON
    fired: list[datetime] = []

    while due is not None and due <= now:
        found = plan(spec, due, now)
        assert found.in_turn
        assert len(found.fire) <= 1_000
        fired += found.fire
        due = found.next_time  # type: ignore[assignment]  # there is always a next one

    assert len(fired) == len(set(fired)) == number


def test_one_that_is_late_is_caught_up_and_one_on_time_is_not() -> None:
    assert plan(HOURLY["all"], NOON, NOON + 2 * MINUTE).in_turn
    assert not plan(HOURLY["all"], NOON, NOON + MINUTE).in_turn
    assert not plan(HOURLY["last"], NOON, NOON + 2 * MINUTE).in_turn


def test_what_is_passed_over_is_counted_as_far_as_the_row_can_be_read() -> None:
    at = NOON + timedelta(hours=3)

    assert passed_over(HOURLY["last"], NOON, at) == Missed(NOON, at, 4)
    assert passed_over(None, NOON, at) == Missed(NOON, NOON, 1)
    # Its text was changed by somebody who left the next time as it was.
    assert passed_over(Cron("0 0 1 1 *", "UTC"), NOON, at) == Missed(NOON, NOON, 1)


def test_a_moment_is_shown_in_a_zone_that_exists() -> None:
    with override_settings(TIME_ZONE="Europe/Paris"):
        shown = [in_zone(NOON, zone) for zone in ("Asia/Tokyo", "", "Europe/Atlantis")]

    assert [str(moment.utcoffset()) for moment in shown] == ["9:00:00", "1:00:00", "1:00:00"]


def test_the_offset_of_a_name_is_always_the_same_and_within_the_jitter() -> None:
    offsets = {jitter_of(f"tenant {n}", 600) for n in range(100)}

    assert len(offsets) > 50
    assert len({jitter_of(str(number), 1) for number in range(100)}) > 90
    assert max(offsets) < timedelta(seconds=600)
    assert jitter_of("tenant 1", 600) == jitter_of("tenant 1", 600)
    assert jitter_of("tenant 1", 0) == timedelta(0)


@pytest.mark.parametrize(
    ("text", "moment", "change"),
    [
        ("30 2 * * *", "2026-03-29T01:00+00:00", "skipped"),
        ("30 2 * * *", "2026-10-25T00:30+00:00", "repeated"),
        ("30 2 * * *", "2026-07-01T00:30+00:00", ""),
        ("0 3 * * *", "2026-03-29T01:00+00:00", ""),
        ("30 * * * *", "2026-10-25T00:30+00:00", ""),
    ],
)
def test_what_a_clock_change_does_to_a_due_time_is_known(
    text: str, moment: str, change: str
) -> None:
    assert Cron(text, "Europe/Paris").clock_change(datetime.fromisoformat(moment)) == change


# Moments in other zones than UTC
