"""Whether a queue fails or times out clearly more than usual."""

from __future__ import annotations

import pytest

from hipq_django.monitoring.endings import MIN_NUMBER, MIN_USUAL, Endings, Trend

USUAL = Endings(succeeded=980, failed=20)


@pytest.mark.parametrize(
    ("lately", "usually", "is_failing"),
    [
        (Endings(), Endings(), False),
        (Endings(failed=MIN_NUMBER - 1), Endings(), False),
        (Endings(failed=MIN_NUMBER), Endings(), True),
        (Endings(succeeded=200, failed=20), USUAL, False),
        (Endings(succeeded=180, failed=20), USUAL, True),
        # Where half of the jobs always fail, that half of them fail is no news.
        (Endings(succeeded=50, failed=50), Endings(succeeded=500, failed=500), False),
        # But that all of them fail is; three times as many there cannot be.
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
    late, before = (Endings(each.succeeded, 0, each.failed) for each in (lately, usually))

    assert Trend(lately, usually).is_failing is Trend(late, before).is_timing_out is is_failing
    assert not Trend(lately, usually).is_timing_out
