"""How far a deadline is moved."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given, strategies as st

from hipq_django.api.reporting import later_deadline
from hipq_django.domain.validation import MAX_SECONDS

NOON = datetime(2025, 1, 6, 12, tzinfo=UTC)
moments = st.datetimes(datetime(1970, 1, 1), datetime(9000, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - made aware


@given(moments, st.floats(0.001, MAX_SECONDS), moments, moments)
def test_a_deadline_never_goes_back_and_never_past_the_last_moment(
    deadline: datetime, seconds: float, last: datetime, now: datetime
) -> None:
    moved = later_deadline(deadline, seconds, last, now)

    assert deadline <= moved <= max(deadline, last)
    assert moved <= max(deadline, now) + timedelta(seconds=seconds)
