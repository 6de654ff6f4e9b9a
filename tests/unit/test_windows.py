"""Time windows: what may be written, and when they are open, on any day of any zone."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, strategies as st

from hipq_django.domain.windows import (
    WEEKDAYS,
    TimeWindow,
    is_open,
    next_opening,
    parse_windows,
)
from hipq_django.exceptions import InvalidJobError

PARIS = ZoneInfo("Europe/Paris")
HOW_TO_WRITE = 'write "HH:MM-HH:MM", for example "22:00-02:00" or "mon-fri 22:00-02:00".'

# The first instants, in UTC, of a new offset.
CLOCK_CHANGES = [
    ("Europe/Paris", datetime(2025, 3, 30, 1, 0, tzinfo=UTC)),
    ("Europe/Paris", datetime(2025, 10, 26, 1, 0, tzinfo=UTC)),
    ("America/New_York", datetime(2025, 3, 9, 7, 0, tzinfo=UTC)),
    ("America/New_York", datetime(2025, 11, 2, 6, 0, tzinfo=UTC)),
    # Half an hour only.
    ("Australia/Lord_Howe", datetime(2025, 10, 4, 15, 30, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2025, 4, 5, 15, 0, tzinfo=UTC)),
    # At midnight: the day starts at 01:00, or the evening before comes twice.
    ("America/Sao_Paulo", datetime(2018, 11, 4, 3, 0, tzinfo=UTC)),
    ("America/Sao_Paulo", datetime(2018, 2, 18, 2, 0, tzinfo=UTC)),
    ("Africa/Cairo", datetime(2025, 4, 24, 22, 0, tzinfo=UTC)),
    ("Africa/Cairo", datetime(2025, 10, 30, 21, 0, tzinfo=UTC)),
    # One minute past midnight, back into the day before.
    ("America/St_Johns", datetime(2010, 11, 7, 2, 31, tzinfo=UTC)),
    # A whole day is skipped; nearly a whole day is repeated.
    ("Pacific/Apia", datetime(2011, 12, 30, 10, 0, tzinfo=UTC)),
    ("Pacific/Kwajalein", datetime(1993, 8, 21, 12, 0, tzinfo=UTC)),
    ("Pacific/Kwajalein", datetime(1969, 9, 30, 13, 0, tzinfo=UTC)),
    # For good, without summer time.
    ("Asia/Pyongyang", datetime(2015, 8, 14, 15, 0, tzinfo=UTC)),
    ("Asia/Pyongyang", datetime(2018, 5, 4, 15, 0, tzinfo=UTC)),
]


def at(zone: ZoneInfo, text: str) -> datetime:
    """The instant at which the clock of `zone` shows `text` first."""
    # In UTC, because a repeated time never equals one of another zone (PEP 495).
    return datetime.fromisoformat(text).replace(tzinfo=zone).astimezone(UTC)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


# What may be written


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("05:00-07:00", "05:00-07:00"),
        (" 05:00:00-07:00:00 ", "05:00-07:00"),
        ("22:00-02:00", "22:00-02:00"),
        ("22:00-00:00", "22:00-24:00"),
        ("mon, wed-fri  05:00-07:00", "mon,wed-fri 05:00-07:00"),
        (TimeWindow(time(22), time(2, 0, 5)), "22:00-02:00:05"),
        (TimeWindow("22:00", time(0)), "22:00-24:00"),
    ],
)
def test_a_window_is_read_and_kept_as_its_shortest_text(given: Any, text: str) -> None:
    [window] = parse_windows([given])

    assert str(window) == text
    assert parse_windows((window,)) == parse_windows([text]) == (window,)


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("", ""),
        ("Mon-FRI", "mon-fri"),
        ("fri-mon", "fri-mon"),
        ("sat-sun", "sat,sun"),
        ("fri,mon,thu,wed", "mon,wed-fri"),
        ("sun-mon,wed", "wed,sun,mon"),
        ("mon-sun", ""),
    ],
)
def test_weekdays_are_kept_as_their_shortest_text(written: str, kept: str) -> None:
    assert TimeWindow("05:00", "07:00", days=written).days == kept


def test_windows_are_values() -> None:
    window = TimeWindow("05:00", "07:00", days="MON")

    assert {window, TimeWindow("05:00:00", "07:00", days="mon")} == {window}
    assert repr(window) == "TimeWindow(start='05:00', end='07:00', days='mon')"
    assert replace(window, days="tue") == TimeWindow("05:00", "07:00", days="tue")
    assert pickle.loads(pickle.dumps(window)) == window
    with pytest.raises(AttributeError):
        window.start = "06:00"  # type: ignore[misc]  # what is refused


# What is refused


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ("25:00-26:00", "'25:00' is not a time of day"),
        ("5:00-07:00", "'5:00' is not a time of day"),
        ("05:00-07:00-09:00", "'07:00-09:00' is not a time of day"),
        ("0\u0665:00-07:00", "'0\u0665:00' is not a time of day"),
        ("24:00-02:00", "24:00 can be an end only"),
        ("05:00-05:00:00", 'start and end are the same (the whole day is "00:00-24:00")'),
        ("monday 05:00-07:00", "'monday' is not one of mon, tue, wed, thu, fri, sat, sun"),
        ("mon- 05:00-07:00", "'' is not one of mon, tue, wed, thu, fri, sat, sun"),
        ("", "not two times of day with a dash between them"),
        ({"start": "05:00", "end": "07:00"}, "not a text or a TimeWindow"),
    ],
)
def test_a_window_is_refused_with_the_rule_and_the_way_out(given: Any, rule: str) -> None:
    with pytest.raises(InvalidJobError, match=re.escape(rule)) as refused:
        parse_windows([given])

    assert str(refused.value).endswith(HOW_TO_WRITE)


@pytest.mark.parametrize(
    ("end", "days", "rule"),
    [
        (time(7, 0, 0, 1), "", "time(7, 0, 0, 1) is not a time of day"),
        (time(7, tzinfo=UTC), "", "is not a time of day"),
        ("07:00", ["mon"], "['mon'] is not a text of weekdays"),
    ],
)
def test_a_time_window_takes_times_of_day_and_weekdays(end: Any, days: Any, rule: str) -> None:
    with pytest.raises(InvalidJobError, match=re.escape(rule)):
        TimeWindow("05:00", end, days=days)


@pytest.mark.parametrize(
    "values", ["05:00-07:00", b"22:00-02:00", None, 5, TimeWindow("05:00", "07:00"), {"start": ""}]
)
def test_one_window_that_is_not_in_a_list_is_refused(values: Any) -> None:
    with pytest.raises(InvalidJobError, match=re.escape(f"time windows {values!r}: give a list")):
        parse_windows(values)


# Ordinary days (2025-06-02 is a Monday, Paris is two hours ahead of UTC)


@pytest.mark.parametrize(
    ("windows", "moment", "opening"),
    [
        (["05:00-07:00"], "2025-06-02 04:59:59.999999", "2025-06-02 05:00"),
        (["05:00-07:00"], "2025-06-02 07:00", "2025-06-03 05:00"),
        (["05:00:30-07:00"], "2025-06-02 05:00:29", "2025-06-02 05:00:30"),
        (["05:00-07:00", "22:00-23:00"], "2025-06-02 08:00", "2025-06-02 22:00"),
        (["22:00-23:00", "05:00-07:00"], "2025-06-02 23:00", "2025-06-03 05:00"),
        (["22:00-02:00"], "2025-06-02 02:00", "2025-06-02 22:00"),
        (["22:00-24:00"], "2025-06-02 00:00", "2025-06-02 22:00"),
        (["mon-fri 22:00-02:00"], "2025-06-07 02:00", "2025-06-09 22:00"),
        (["fri-mon 05:00-07:00"], "2025-06-02 07:00", "2025-06-06 05:00"),
        (["sat 05:00-07:00", "wed 09:00-10:00"], "2025-06-02 07:00", "2025-06-04 09:00"),
        (["sun 22:00-02:00"], "2025-06-02 03:00", "2025-06-08 22:00"),
    ],
)
def test_a_closed_moment_waits_for_the_next_start(
    windows: list[str], moment: str, opening: str
) -> None:
    parsed = parse_windows(windows)

    assert not is_open(parsed, at(PARIS, moment), PARIS)
    assert next_opening(parsed, at(PARIS, moment), PARIS) == at(PARIS, opening)


@pytest.mark.parametrize(
    ("windows", "moment"),
    [
        (["05:00-07:00"], "2025-06-02 05:00"),
        (["05:00-07:00"], "2025-06-02 06:59:59.999999"),
        (["05:00-07:00", "22:00-23:00"], "2025-06-02 22:30:00.000007"),
        (["05:00-07:00", "06:00-08:00"], "2025-06-02 07:30"),
        (["22:00-02:00"], "2025-06-02 01:59:59"),
        (["22:00-24:00"], "2025-06-02 23:59:59.999999"),
        (["mon 00:00-24:00"], "2025-06-02 23:59:59.999999"),
        (["fri 22:00-02:00"], "2025-06-07 01:00"),
        (["sun 22:00-02:00"], "2025-06-02 01:00"),
    ],
)
def test_an_open_moment_is_kept_to_the_microsecond(windows: list[str], moment: str) -> None:
    parsed = parse_windows(windows)

    assert is_open(parsed, at(PARIS, moment), PARIS)
    assert next_opening(parsed, at(PARIS, moment), PARIS) == at(PARIS, moment)


def test_the_next_start_is_never_the_present_one() -> None:
    monday_at_five = datetime.combine(date(2025, 6, 2), time(5))

    assert TimeWindow("05:00", "07:00").next_start(monday_at_five) == datetime.combine(
        date(2025, 6, 3), time(5)
    )


def test_openings_are_in_utc_whatever_zone_the_moment_has() -> None:
    moment = datetime(2025, 6, 2, 1, tzinfo=timezone(timedelta(hours=-3)))

    for hours in ("06:00-07:00", "07:00-08:00"):
        opening = next_opening(parse_windows([hours]), moment, PARIS)
        assert opening.tzinfo is UTC
        assert opening == at(PARIS, f"2025-06-02 {hours[:5]}")


# Days on which the clock changes


@pytest.mark.parametrize(
    ("window", "zone", "moment", "opening"),
    [
        # One that opens in the skipped hour opens after it, one within it not on that day.
        ("02:30-04:00", "Europe/Paris", "2025-03-30 01:59:59", "2025-03-30 01:00"),
        ("02:10-02:50", "Europe/Paris", "2025-03-30 00:00", "2025-03-31 00:10"),
        ("02:00-03:00", "Europe/Paris", "2025-03-30 00:00", "2025-03-31 00:00"),
        # Both passes of the repeated hour are open.
        ("02:00-02:30", "Europe/Paris", "2025-10-26 01:00", "2025-10-26 00:00"),
        ("02:00-02:30", "Europe/Paris", "2025-10-26 02:30", "2025-10-26 01:00"),
        # One that closed opens again when the clock goes back into it.
        ("01:30-02:30", "Europe/Paris", "2025-10-26 02:45", "2025-10-26 01:00"),
        # Half an hour is skipped, and midnight.
        ("02:15-02:45", "Australia/Lord_Howe", "2025-10-05 01:00", "2025-10-04 15:30"),
        ("sun 00:00-02:00", "America/Sao_Paulo", "2018-11-03 20:00", "2018-11-04 03:00"),
        # Summer time for a week: both changes are seen.
        ("sat 23:58-23:59", "America/Boa_Vista", "2000-10-07 23:59:30", "2000-10-15 02:58"),
        # Friday 30 December is skipped, but not the night after it.
        ("09:00-10:00", "Pacific/Apia", "2011-12-29 12:00", "2011-12-30 19:00"),
        ("fri 09:00-10:00", "Pacific/Apia", "2011-12-29 12:00", "2012-01-05 19:00"),
        ("fri 22:00-02:00", "Pacific/Apia", "2011-12-29 12:00", "2011-12-30 10:00"),
    ],
)
def test_an_opening_on_a_day_on_which_the_clock_changes(
    window: str, zone: str, moment: str, opening: str
) -> None:
    tz = ZoneInfo(zone)

    assert next_opening(parse_windows([window]), at(tz, moment), tz) == utc(opening)


# Against an oracle that looks at every minute, or second, one by one


class Window:
    """A window as plain numbers: seconds since midnight, weekdays from Monday = 0."""

    def __init__(self, start: int, end: int, days: frozenset[int]) -> None:
        self.start, self.end, self.days = start, end, days

    def __repr__(self) -> str:
        days = ",".join(WEEKDAYS[day] for day in sorted(self.days))
        return f"{days} {_clock(self.start)}-{_clock(self.end)}"

    def is_open(self, second: int, weekday: int) -> bool:
        if self.start < self.end:
            return self.start <= second < self.end and weekday in self.days
        today = second >= self.start and weekday in self.days
        return today or (second < self.end and (weekday - 1) % 7 in self.days)


def _clock(seconds: int) -> str:
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def oracle(windows: list[Window], moment: datetime, zone: ZoneInfo) -> bool:
    wall = moment.astimezone(zone)
    second = wall.hour * 3600 + wall.minute * 60 + wall.second
    return any(window.is_open(second, wall.weekday()) for window in windows)


def scan(
    windows: list[Window], moment: datetime, zone: ZoneInfo, *, step: timedelta, end: datetime
) -> datetime | None:
    """Return the first open moment, looking at `moment` and at each whole step up to `end`."""
    if oracle(windows, moment, zone):
        return moment
    moment -= (moment - datetime.min.replace(tzinfo=UTC)) % step
    while moment < end:
        moment += step
        if oracle(windows, moment, zone):
            return moment
    return None


@st.composite
def moments_near_changes(draw: st.DrawFn, *, hours: int, grid: int) -> tuple[ZoneInfo, datetime]:
    """A zone, and a moment on a grid of seconds near a change of its clock, mostly before it."""
    name, change = draw(st.sampled_from(CLOCK_CHANGES))
    steps = draw(st.integers(-hours * 3600 // grid, hours * 1800 // grid))
    microseconds = draw(st.sampled_from([0, 0, 1, 999_999]))
    moment = change + timedelta(seconds=steps * grid, microseconds=microseconds)
    return ZoneInfo(name), moment


WEEKDAY_SETS = st.one_of(st.just(frozenset(range(7))), st.frozensets(st.integers(0, 6), min_size=1))
MINUTES = st.one_of(st.integers(0, 1439), st.integers(0, 210), st.integers(22 * 60, 1439))


@st.composite
def windows_in_minutes(draw: st.DrawFn) -> Window:
    start = draw(MINUTES)
    end = draw(st.one_of(MINUTES, st.just(1440), st.just((start + 15) % 1440)))
    end = end if end != start else 1440 if start == 0 else 0
    return Window(start * 60, end * 60, draw(WEEKDAY_SETS))


@given(
    moments_near_changes(hours=40, grid=60), st.lists(windows_in_minutes(), min_size=1, max_size=3)
)
@example((PARIS, utc("2025-10-26 00:45")), [Window(90 * 60, 150 * 60, frozenset({6}))])
def test_next_opening_is_the_first_open_minute(
    place: tuple[ZoneInfo, datetime], windows: list[Window]
) -> None:
    zone, moment = place
    end = moment + timedelta(days=15)

    opening = next_opening(parse_windows([repr(window) for window in windows]), moment, zone)

    assert opening == scan(windows, moment, zone, step=timedelta(minutes=1), end=end)


# Stored text


@given(st.lists(windows_in_minutes()))
def test_stored_text_reads_back_as_the_same_windows(windows: list[Window]) -> None:
    parsed = parse_windows([repr(window) for window in windows])

    assert parse_windows([str(window) for window in parsed]) == parsed


@given(st.frozensets(st.integers(0, 6), min_size=1))
def test_shortened_weekdays_are_the_same_weekdays(days: frozenset[int]) -> None:
    window = TimeWindow("12:00", "13:00", days=",".join(WEEKDAYS[day] for day in days))

    monday = datetime.combine(date(2025, 6, 2), time(12))
    assert {day for day in range(7) if window.contains(monday + timedelta(days=day))} == days
    assert TimeWindow("12:00", "13:00", days=window.days) == window
