"""Whether a queue fails or times out clearly more than usual."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from hipq_django.monitoring.endings import MIN_NUMBER, MIN_USUAL, Endings, Trend

USUAL = Endings(succeeded=980, failed=20)
NUMBERS = st.integers(0, 2_000)


@pytest.mark.parametrize(
    ("lately", "usually", "is_failing"),
    [
        (Endings(), Endings(), False),
        (Endings(failed=MIN_NUMBER - 1), Endings(), False),
        (Endings(failed=MIN_NUMBER), Endings(), True),
        (Endings(succeeded=1_000, failed=20), USUAL, False),
        (Endings(succeeded=95, failed=5), USUAL, False),
        (Endings(succeeded=200, failed=20), USUAL, False),
        (Endings(succeeded=180, failed=20), USUAL, True),
        # Where half of the jobs always fail, that half of them fail is no news.
        (Endings(succeeded=50, failed=50), Endings(succeeded=500, failed=500), False),
        # But that all of them fail is; three times as many there cannot be.
        (Endings(failed=100), Endings(succeeded=600, failed=400), True),
        (Endings(succeeded=30, failed=70), Endings(succeeded=600, failed=400), True),
        (Endings(succeeded=31, failed=69), Endings(succeeded=600, failed=400), False),
        (Endings(failed=100), Endings(succeeded=10, failed=990), False),
        # What so few jobs did is no rule.
        (Endings(succeeded=50, failed=50), Endings(failed=MIN_USUAL - 1), True),
    ],
)
def test_a_queue_fails_where_its_share_is_large_and_unusual(
    lately: Endings, usually: Endings, is_failing: bool
) -> None:
    assert Trend(lately, usually).is_failing is is_failing


@pytest.mark.parametrize(
    ("lately", "usually", "is_too_short"),
    [
        (Endings(failed=MIN_NUMBER - 1), USUAL, True),
        (Endings(timed_out=1), USUAL, True),
        (Endings(succeeded=5), USUAL, False),
        (Endings(succeeded=1_000, failed=9), USUAL, False),
        (Endings(succeeded=5), Endings(succeeded=MIN_USUAL - 1), True),
        (Endings(failed=MIN_NUMBER), Endings(), False),  # all of them: that is told
    ],
)
def test_too_few_jobs_are_not_called_usual(
    lately: Endings, usually: Endings, is_too_short: bool
) -> None:
    assert Trend(lately, usually).is_too_short is is_too_short


@given(NUMBERS, NUMBERS, NUMBERS, NUMBERS)
def test_time_outs_are_judged_as_failures_are(
    succeeded: int, number: int, usual: int, usual_number: int
) -> None:
    failing = Trend(
        Endings(succeeded=succeeded, failed=number), Endings(succeeded=usual, failed=usual_number)
    )
    late = Trend(
        Endings(succeeded=succeeded, timed_out=number),
        Endings(succeeded=usual, timed_out=usual_number),
    )
    assert failing.is_failing == late.is_timing_out
    assert not failing.is_timing_out
    assert not late.is_failing


@given(NUMBERS, NUMBERS, NUMBERS, NUMBERS)
def test_one_failure_more_never_makes_a_queue_well(
    succeeded: int, failed: int, usual: int, usual_failed: int
) -> None:
    before = Endings(succeeded=usual, failed=usual_failed)
    if Trend(Endings(succeeded=succeeded, failed=failed), before).is_failing:
        assert Trend(Endings(succeeded=succeeded, failed=failed + 1), before).is_failing
