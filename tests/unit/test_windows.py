"""Time windows: what may be written, and when they are open, on any day of any zone."""

from __future__ import annotations

import pickle
import re
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta, timezone
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
LORD_HOWE = ZoneInfo("Australia/Lord_Howe")
SAO_PAULO = ZoneInfo("America/Sao_Paulo")
ST_JOHNS = ZoneInfo("America/St_Johns")
APIA = ZoneInfo("Pacific/Apia")
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


def at(zone: ZoneInfo, text: str, *, fold: int = 0) -> datetime:
    """The instant at which the clock of `zone` shows `text`; fold 1: for the second time."""
    # In UTC, because a repeated time never equals one of another zone (PEP 495).
    return datetime.fromisoformat(text).replace(tzinfo=zone, fold=fold).astimezone(UTC)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


# What may be written


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("05:00-07:00", TimeWindow("05:00", "07:00")),
        ("05:00:30-07:00", TimeWindow("05:00:30", "07:00")),
        (" 05:00:00-07:00:00 ", TimeWindow("05:00", "07:00")),
        ("22:00-02:00", TimeWindow("22:00", "02:00")),
        ("00:00-24:00", TimeWindow("00:00", "24:00")),
        ("mon-fri 22:00-02:00", TimeWindow("22:00", "02:00", days="mon-fri")),
        ("mon, wed-fri  05:00-07:00", TimeWindow("05:00", "07:00", days="mon,wed-fri")),
    ],
)
def test_a_window_is_read_from_text(text: str, window: TimeWindow) -> None:
    assert parse_windows([text]) == (window,)


def test_a_window_is_read_from_a_dict() -> None:
    windows = parse_windows(
        [
            {"start": "03:47:18", "end": "04:11:59"},
            {"start": "11:00", "end": "12:00", "days": "sun"},
        ]
    )

    assert [str(window) for window in windows] == ["03:47:18-04:11:59", "sun 11:00-12:00"]


def test_a_window_is_taken_as_it_is() -> None:
    window = TimeWindow("05:00", "07:00")

    assert parse_windows((window,)) == (window,)


def test_no_windows_are_an_empty_tuple() -> None:
    assert parse_windows([]) == ()


def test_times_of_day_may_be_time_objects() -> None:
    assert TimeWindow(time(22), time(2, 0, 5)) == TimeWindow("22:00", "02:00:05")


@pytest.mark.parametrize("end", ["00:00", "24:00", "24:00:00", time(0)])
def test_an_end_at_midnight_is_the_end_of_the_day(end: str | time) -> None:
    assert str(TimeWindow("22:00", end)) == "22:00-24:00"


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("", ""),
        ("  ", ""),
        ("Mon-FRI", "mon-fri"),
        ("fri-mon", "fri-mon"),
        ("sat,sun", "sat,sun"),
        ("sat-sun", "sat,sun"),
        ("sun , sat", "sat,sun"),
        ("mon,wed-fri", "mon,wed-fri"),
        ("fri,mon,thu,wed", "mon,wed-fri"),
        ("sun-mon,wed", "wed,sun,mon"),
        ("tue-tue", "tue"),
        ("mon-sun", ""),
        ("thu-wed", ""),
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


def test_windows_sort_by_start() -> None:
    late, early, longer = parse_windows(["22:00-02:00", "05:00-07:00", "05:00-07:30"])

    assert sorted([late, longer, early]) == [early, longer, late]


# What is refused


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("25:00-26:00", "'25:00' is not a time of day"),
        ("05:00-24:01", "'24:01' is not a time of day"),
        ("05:60-07:00", "'05:60' is not a time of day"),
        ("05:00:60-07:00", "'05:00:60' is not a time of day"),
        ("05:00:00.5-07:00", "'05:00:00.5' is not a time of day"),
        ("5:00-07:00", "'5:00' is not a time of day"),
        ("05:00-", "'' is not a time of day"),
        ("05:00-07:00-09:00", "'07:00-09:00' is not a time of day"),
        ("0\u0665:00-07:00", "'0\u0665:00' is not a time of day"),
        ("24:00-02:00", "24:00 can be an end only"),
        ("05:00-05:00", 'start and end are the same (the whole day is "00:00-24:00")'),
        ("05:00-05:00:00", 'start and end are the same (the whole day is "00:00-24:00")'),
        ("00:00-00:00", 'start and end are the same (the whole day is "00:00-24:00")'),
        ("monday 05:00-07:00", "'monday' is not one of mon, tue, wed, thu, fri, sat, sun"),
        ("mon,,fri 05:00-07:00", "'' is not one of mon, tue, wed, thu, fri, sat, sun"),
        ("mon- 05:00-07:00", "'' is not one of mon, tue, wed, thu, fri, sat, sun"),
        ("", "not two times of day with a dash between them"),
        ("05:00", "not two times of day with a dash between them"),
        ("05:00 - 07:00", "not two times of day with a dash between them"),
    ],
)
def test_malformed_text_is_refused_with_the_rule_and_the_way_out(text: str, rule: str) -> None:
    with pytest.raises(InvalidJobError) as refused:
        parse_windows([text])

    assert str(refused.value) == f"time window {text!r}: {rule}, {HOW_TO_WRITE}"


@pytest.mark.parametrize(
    ("start", "end", "days", "message"),
    [
        (5, "07:00", "", "time window '5-07:00': 5 is not a time of day"),
        (None, "07:00", "", "time window 'None-07:00': None is not a time of day"),
        ("05:00", time(7, 0, 0, 1), "", "time(7, 0, 0, 1) is not in whole seconds"),
        ("05:00", time(7, tzinfo=UTC), "", "has a time zone of its own (the job type's is used)"),
        ("05:00", "07:00", None, "None is not a text of weekdays"),
        ("05:00", "07:00", ["mon"], "['mon'] is not a text of weekdays"),
        ("05:00", "07:00", "mon;fri", "time window 'mon;fri 05:00-07:00': 'mon;fri' is not one of"),
    ],
)
def test_wrong_values_are_refused(start: object, end: object, days: object, message: str) -> None:
    with pytest.raises(InvalidJobError, match=re.escape(message)):
        TimeWindow(start, end, days=days)  # type: ignore[arg-type]  # any values


@pytest.mark.parametrize(
    "value",
    [{"start": "05:00"}, {"end": "05:00"}, {"start": "05:00", "end": "07:00", "day": "mon"}, {}],
)
def test_a_dict_with_other_keys_is_refused(value: dict[str, str]) -> None:
    with pytest.raises(InvalidJobError) as refused:
        parse_windows([value])

    rule = "the keys must be 'start', 'end' and, if wanted, 'days'"
    assert str(refused.value) == f"time window {value!r}: {rule}, {HOW_TO_WRITE}"


@pytest.mark.parametrize("value", [5, None, ("05:00", "07:00"), b"05:00-07:00"])
def test_a_window_of_another_type_is_refused(value: object) -> None:
    with pytest.raises(InvalidJobError, match="not a text, a TimeWindow or a dict"):
        parse_windows([value])  # type: ignore[list-item]  # what is refused


@pytest.mark.parametrize(
    "values", ["05:00-07:00", b"22:00-02:00", None, 5, TimeWindow("05:00", "07:00"), {"start": ""}]
)
def test_one_window_that_is_not_in_a_list_is_refused(values: object) -> None:
    with pytest.raises(InvalidJobError) as refused:
        parse_windows(values)  # type: ignore[arg-type]  # what is refused

    hint = "give a list, for example ['22:00-02:00']."
    assert str(refused.value) == f"time windows {values!r}: {hint}"


def test_naive_moments_are_refused() -> None:
    windows = parse_windows(["05:00-07:00"])
    naive = datetime(2025, 6, 2, 6)  # noqa: DTZ001 - what is refused

    for question in (is_open, next_opening):
        with pytest.raises(InvalidJobError, match="naive, give it a time zone"):
            question(windows, naive, PARIS)


def test_no_windows_have_no_opening() -> None:
    for question in (is_open, next_opening):
        with pytest.raises(ValueError, match="a job without windows is never closed"):
            question((), utc("2025-06-02 06:00"), PARIS)


@pytest.mark.parametrize(
    "moment", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]
)
def test_moments_at_the_ends_of_time_are_refused(moment: datetime) -> None:
    windows = parse_windows(["05:00-07:00"])

    for question in (is_open, next_opening):
        with pytest.raises(InvalidJobError, match="too far away, use the years 2 to 9998"):
            question(windows, moment, PARIS)


# Ordinary days (2025-06-02 is a Monday, Paris is two hours ahead of UTC)


@pytest.mark.parametrize(
    ("windows", "moment", "opening"),
    [
        (["05:00-07:00"], "2025-06-02 04:00", "2025-06-02 05:00"),
        (["05:00-07:00"], "2025-06-02 04:59:59.999999", "2025-06-02 05:00"),
        (["05:00-07:00"], "2025-06-02 07:00", "2025-06-03 05:00"),
        (["05:00:30-07:00"], "2025-06-02 05:00:29", "2025-06-02 05:00:30"),
        (["05:00-07:00", "22:00-23:00"], "2025-06-02 08:00", "2025-06-02 22:00"),
        (["22:00-23:00", "05:00-07:00"], "2025-06-02 23:00", "2025-06-03 05:00"),
        (["22:00-02:00"], "2025-06-02 02:00", "2025-06-02 22:00"),
        (["22:00-02:00:30"], "2025-06-02 02:00:30", "2025-06-02 22:00"),
        (["22:00-24:00"], "2025-06-02 00:00", "2025-06-02 22:00"),
        (["mon-fri 22:00-02:00"], "2025-06-07 02:00", "2025-06-09 22:00"),
        (["mon 05:00-07:00"], "2025-06-02 07:00", "2025-06-09 05:00"),
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
        (["05:00:30-07:00"], "2025-06-02 05:00:30"),
        (["05:00-07:00", "22:00-23:00"], "2025-06-02 22:30:00.000007"),
        (["05:00-07:00", "06:00-08:00"], "2025-06-02 07:30"),
        (["05:00-07:00", "07:00-08:00"], "2025-06-02 07:00"),
        (["22:00-02:00"], "2025-06-02 01:59:59"),
        (["22:00-24:00"], "2025-06-02 23:59:59.999999"),
        (["00:00-24:00"], "2025-06-02 00:00"),
        (["mon 00:00-24:00"], "2025-06-02 23:59:59.999999"),
        (["fri 22:00-02:00"], "2025-06-07 01:00"),
        (["sun 22:00-02:00"], "2025-06-02 01:00"),
    ],
)
def test_an_open_moment_is_kept_to_the_microsecond(windows: list[str], moment: str) -> None:
    parsed = parse_windows(windows)

    assert is_open(parsed, at(PARIS, moment), PARIS)
    assert next_opening(parsed, at(PARIS, moment), PARIS) == at(PARIS, moment)


def test_the_weekday_is_the_one_on_which_a_window_opens() -> None:
    friday_night = parse_windows(["fri 22:00-02:00"])

    assert not is_open(friday_night, at(PARIS, "2025-06-06 01:00"), PARIS)
    assert is_open(friday_night, at(PARIS, "2025-06-07 01:00"), PARIS)
    assert not is_open(friday_night, at(PARIS, "2025-06-07 23:00"), PARIS)


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


def test_an_opening_in_the_skipped_hour_is_the_first_instant_after_it() -> None:
    windows = parse_windows(["02:30-04:00"])

    opening = next_opening(windows, at(PARIS, "2025-03-30 01:59:59"), PARIS)

    assert opening == utc("2025-03-30 01:00") == at(PARIS, "2025-03-30 03:00")


@pytest.mark.parametrize("hours", ["02:10-02:50", "02:00-03:00"])
def test_a_window_within_the_skipped_hour_does_not_open_that_day(hours: str) -> None:
    windows = parse_windows([hours])

    opening = next_opening(windows, at(PARIS, "2025-03-30 00:00"), PARIS)

    assert opening == at(PARIS, f"2025-03-31 {hours[:5]}")


def test_both_passes_of_the_repeated_hour_are_open() -> None:
    windows = parse_windows(["02:00-02:30"])
    first, second = (at(PARIS, "2025-10-26 02:00", fold=fold) for fold in (0, 1))

    assert next_opening(windows, at(PARIS, "2025-10-26 01:00"), PARIS) == first
    assert next_opening(windows, first + timedelta(minutes=30), PARIS) == second
    assert second - first == timedelta(hours=1)


def test_a_window_that_closed_opens_again_when_the_clock_goes_back_into_it() -> None:
    windows = parse_windows(["01:30-02:30"])

    opening = next_opening(windows, at(PARIS, "2025-10-26 02:45"), PARIS)

    assert opening == utc("2025-10-26 01:00") == at(PARIS, "2025-10-26 02:00", fold=1)


def test_half_an_hour_may_be_skipped() -> None:
    windows = parse_windows(["02:15-02:45"])

    opening = next_opening(windows, at(LORD_HOWE, "2025-10-05 01:00"), LORD_HOWE)

    assert opening == utc("2025-10-04 15:30") == at(LORD_HOWE, "2025-10-05 02:30")


def test_midnight_may_be_skipped() -> None:
    windows = parse_windows(["sun 00:00-02:00"])

    opening = next_opening(windows, at(SAO_PAULO, "2018-11-03 20:00"), SAO_PAULO)

    assert opening == utc("2018-11-04 03:00") == at(SAO_PAULO, "2018-11-04 01:00")


def test_the_evening_before_may_come_twice() -> None:
    windows = parse_windows(["sun 00:00-00:01", "sat 23:30-23:45"])
    change = utc("2010-11-07 02:31")  # from Sunday 00:01 back to Saturday 23:01

    assert is_open(windows, change - timedelta(seconds=1), ST_JOHNS)
    assert next_opening(windows, change, ST_JOHNS) == change + timedelta(minutes=29)
    midnight = next_opening(windows, change + timedelta(minutes=44), ST_JOHNS)
    assert midnight == change + timedelta(minutes=59)


def test_two_changes_within_one_week_are_both_seen() -> None:
    windows = parse_windows(["sat 23:58-23:59"])
    boa_vista = ZoneInfo("America/Boa_Vista")  # summer time from 8 to 15 October 2000 only

    opening = next_opening(windows, at(boa_vista, "2000-10-07 23:59:30"), boa_vista)

    assert opening == utc("2000-10-15 02:58") == at(boa_vista, "2000-10-14 23:58")


def test_a_weekday_that_a_zone_skips_does_not_open() -> None:
    thursday = at(APIA, "2011-12-29 12:00")

    assert next_opening(parse_windows(["09:00-10:00"]), thursday, APIA) == at(
        APIA, "2011-12-31 09:00"
    )
    assert next_opening(parse_windows(["fri 09:00-10:00"]), thursday, APIA) == at(
        APIA, "2012-01-06 09:00"
    )


def test_the_night_after_a_skipped_day_is_open() -> None:
    windows = parse_windows(["fri 22:00-02:00"])

    opening = next_opening(windows, at(APIA, "2011-12-29 12:00"), APIA)

    assert opening == utc("2011-12-30 10:00") == at(APIA, "2011-12-31 00:00")


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


@st.composite
def short_windows_in_seconds(draw: st.DrawFn) -> Window:
    """A daily window of up to 80 minutes at the times at which clocks change."""
    start = draw(st.integers(-90 * 60, 4 * 3600))
    end = start + draw(st.integers(1, 80 * 60))
    return Window(start % 86400, end % 86400 or 86400, frozenset(range(7)))


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


@given(
    moments_near_changes(hours=1, grid=1),
    st.lists(short_windows_in_seconds(), min_size=1, max_size=3),
)
def test_next_opening_is_the_first_open_second(
    place: tuple[ZoneInfo, datetime], windows: list[Window]
) -> None:
    zone, moment = place
    end = moment + timedelta(hours=2)

    opening = next_opening(parse_windows([repr(window) for window in windows]), moment, zone)

    expected = scan(windows, moment, zone, step=timedelta(seconds=1), end=end)
    assert opening == expected or (expected is None and opening > end)


@given(
    st.sampled_from(sorted({name for name, _ in CLOCK_CHANGES})),
    st.datetimes(datetime(1950, 1, 1), datetime(2060, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 - made aware
    st.lists(windows_in_minutes(), min_size=1, max_size=3),
)
def test_openings_are_open_and_begin_there(
    name: str, moment: datetime, windows: list[Window]
) -> None:
    zone = ZoneInfo(name)
    parsed = parse_windows([repr(window) for window in windows])

    opening = next_opening(parsed, moment, zone)

    assert is_open(parsed, moment, zone) == oracle(windows, moment, zone) == (opening == moment)
    assert oracle(windows, opening, zone)
    assert opening == moment or not oracle(windows, opening - timedelta(microseconds=1), zone)


@pytest.mark.parametrize(("name", "change"), CLOCK_CHANGES)
def test_the_days_aimed_at_do_change_the_clock(name: str, change: datetime) -> None:
    zone = ZoneInfo(name)

    before = (change - timedelta(seconds=1)).astimezone(zone).utcoffset()

    assert before != change.astimezone(zone).utcoffset()


# Stored text


@given(st.lists(st.one_of(windows_in_minutes(), short_windows_in_seconds())))
def test_stored_text_reads_back_as_the_same_windows(windows: list[Window]) -> None:
    parsed = parse_windows([repr(window) for window in windows])

    assert parse_windows([str(window) for window in parsed]) == parsed


@given(st.frozensets(st.integers(0, 6), min_size=1))
def test_shortened_weekdays_are_the_same_weekdays(days: frozenset[int]) -> None:
    window = TimeWindow("12:00", "13:00", days=",".join(WEEKDAYS[day] for day in days))

    monday = datetime.combine(date(2025, 6, 2), time(12))
    assert {day for day in range(7) if window.contains(monday + timedelta(days=day))} == days
    assert TimeWindow("12:00", "13:00", days=window.days) == window
