"""The rank: one number that says which waiting job is next."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from hipq_django.domain.ordering import COMMITTED, MAX_PRIORITY, MIN_PRIORITY, Order, Ordering

NOON = datetime(2025, 1, 6, 12, tzinfo=UTC)
BIGINT = 1 << 63

FIRST, LAST = datetime.fromisoformat("1970-01-01"), datetime.fromisoformat("2100-01-01")
moments = st.datetimes(FIRST, LAST, timezones=st.just(UTC))
priorities = st.integers(MIN_PRIORITY, MAX_PRIORITY)
orders = st.sampled_from(list(Order))


def at(minute: int, *, seconds: float = 0) -> datetime:
    return datetime(2015, 3, 1, 10, minute, tzinfo=UTC) + timedelta(seconds=seconds)


def test_times_within_one_granule_count_as_equal() -> None:
    """T27: otherwise microseconds would decide, and priority never."""
    ordering = Ordering(Order.TIME, granularity_seconds=60)

    assert ordering.rank(at(33, seconds=59.9), 50) < ordering.rank(at(33), 100)
    assert ordering.rank(at(33, seconds=60), 50) > ordering.rank(at(33), 100)


def test_ageing_lets_a_point_of_priority_weigh_so_many_seconds() -> None:
    """T28: a static virtual deadline."""
    ordering = Ordering(Order.AGEING, ageing_seconds=60)

    assert ordering.rank(at(10), 0) < ordering.rank(at(0, seconds=1), 10)
    assert ordering.rank(at(10, seconds=1), 0) > ordering.rank(at(0), 10)


@given(orders, moments, moments, priorities)
def test_of_equal_priorities_the_later_is_never_first(
    order: Order, one: datetime, other: datetime, priority: int
) -> None:
    ordering = Ordering(order)
    sooner, later = sorted([one, other])

    assert ordering.rank(sooner, priority) <= ordering.rank(later, priority)


@given(orders, moments, priorities, priorities)
def test_at_the_same_time_the_lower_priority_number_is_first(
    order: Order, moment: datetime, one: int, other: int
) -> None:
    ordering = Ordering(order)
    low, high = sorted([one, other])

    assert ordering.rank(moment, low) <= ordering.rank(moment, high)
    if low < high:
        assert ordering.rank(moment, low) < ordering.rank(moment, high)


@given(moments, moments, priorities, priorities)
def test_priority_first_lets_no_time_outweigh_a_priority(
    one: datetime, other: datetime, low: int, high: int
) -> None:
    ordering = Ordering(Order.PRIORITY)
    if low < high:
        assert ordering.rank(one, low) < ordering.rank(other, high)


@given(orders, moments, st.timedeltas(timedelta(), timedelta(days=9)), priorities)
def test_no_due_job_has_a_rank_behind_the_bound(
    order: Order, moment: datetime, ago: timedelta, priority: int
) -> None:
    ordering = Ordering(order, granularity_seconds=0.5)

    assert ordering.rank(max(moment - ago, FIRST.replace(tzinfo=UTC)), priority) <= (
        ordering.high_water_mark(moment)
    )


@given(orders, moments, st.timedeltas(timedelta(), timedelta(days=9)), priorities)
def test_no_job_of_the_future_has_a_rank_before_the_bound(
    order: Order, moment: datetime, later: timedelta, priority: int
) -> None:
    ordering = Ordering(order, granularity_seconds=0.5)

    assert ordering.rank(moment + later, priority) >= ordering.first_future_rank(moment)


@given(moments, st.timedeltas(-COMMITTED, timedelta(days=9)), priorities)
def test_no_later_job_has_a_rank_before_the_front_of_time_first(
    moment: datetime, later: timedelta, priority: int
) -> None:
    """Nor has one whose enqueue takes a little while to commit."""
    ordering = Ordering(Order.TIME, granularity_seconds=0.5)
    rank = ordering.rank(max(moment + later, FIRST.replace(tzinfo=UTC)), priority)

    assert rank >= ordering.low_water_mark(None, moment)


@given(orders, moments, moments, priorities)
def test_the_front_is_not_behind_the_first_due_job(
    order: Order, moment: datetime, first: datetime, priority: int
) -> None:
    ordering = Ordering(order)
    rank = ordering.rank(first, priority)

    assert ordering.low_water_mark(rank, moment) <= rank


@pytest.mark.parametrize("order", list(Order))
@pytest.mark.parametrize("priority", [MIN_PRIORITY, MAX_PRIORITY])
@pytest.mark.parametrize("year", [1970, 2109, 9000])
def test_every_rank_fits_into_the_column(order: Order, priority: int, year: int) -> None:
    ordering = Ordering(order, granularity_seconds=0.001, ageing_seconds=86_400 * 400)

    assert -BIGINT <= ordering.rank(datetime(year, 1, 1, tzinfo=UTC), priority) < BIGINT
