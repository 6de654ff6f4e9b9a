"""When a node runs that is wanted at several moments."""

from datetime import UTC, datetime, timedelta

import pytest

from hipq_django.flow.alarms import Times, Wanted, of_new_run, of_waiting_run

NOW = datetime(2026, 12, 24, 18, tzinfo=UTC)
PAST, SOON, LATE = (NOW + timedelta(minutes=minutes) for minutes in (-1, 1, 2))


@pytest.mark.parametrize(
    ("times", "when", "now_and_later"),
    [
        (Times(SOON, None), Wanted(True, None), Times(None, SOON)),
        (Times(SOON, LATE), Wanted(True, PAST), Times(None, SOON)),
        (Times(LATE, None), Wanted(False, SOON), Times(SOON, None)),
        (Times(SOON, None), Wanted(False, LATE), Times(SOON, None)),
        (Times(None, LATE), Wanted(False, SOON), Times(None, LATE)),
        (Times(SOON, LATE), Wanted(False, None), Times(SOON, LATE)),
    ],
)
def test_a_run_that_waits_comes_at_the_earliest_moment(
    times: Times, when: Wanted, now_and_later: Times
) -> None:
    assert of_waiting_run(when, times, NOW) == now_and_later


@pytest.mark.parametrize(
    ("alarm", "when", "now_and_later"),
    [
        (None, Wanted(True, None), Times(None, None)),
        (LATE, Wanted(True, SOON), Times(None, SOON)),
        (LATE, Wanted(False, SOON), Times(SOON, LATE)),
        (PAST, Wanted(False, SOON), Times(SOON, None)),
    ],
)
def test_a_new_run_makes_up_for_an_alarm_that_has_passed(
    alarm: datetime | None, when: Wanted, now_and_later: Times
) -> None:
    assert of_new_run(when, alarm, NOW) == now_and_later
