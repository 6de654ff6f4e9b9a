"""The shipped throttlers: shares, limits per key, rates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

import hipq_django as hipq
from hipq_django.domain.throttling import Candidate, RunningJob, Throttler, carried_over
from hipq_django.exceptions import ConfigurationError
from hipq_django.models import Queue

NOON = datetime(2025, 1, 6, 12, tzinfo=UTC)
REGIONS = hipq.ShareLimit("region", {"east": 0.4, "north": 0.3, "west": 0.3})


def candidates(*data: Any, factor: float = 1) -> list[Candidate]:
    return [
        Candidate("charge", "NONE", item, Decimal(str(factor)), number, NOON, 100, 0)
        for number, item in enumerate(data)
    ]


def loads(*data: Any, factor: float = 1) -> list[RunningJob]:
    return [RunningJob("charge", "NONE", item, Decimal(str(factor))) for item in data]


def queue(limit: float) -> Queue:
    return Queue(name="bank", throttle_limit=Decimal(str(limit)))


def admitted(
    throttler: Throttler,
    asked: Sequence[Candidate],
    *,
    limit: float = 10,
    running: Sequence[RunningJob] = (),
) -> list[Any]:
    found = throttler(queue(limit), NOON, running, asked)
    return [c.job_data for c, v in zip(asked, found, strict=True) if isinstance(v, hipq.Run)]


def regions(**counts: int) -> list[dict[str, str]]:
    return [{"region": name} for name, count in counts.items() for _ in range(count)]


# Shares


def test_each_region_gets_its_share_of_the_limit() -> None:
    """T23: limit 100, east 40 %, north 30 %, west 30 %."""
    asked = candidates(*regions(east=100, north=100, west=100))

    started = Counter(data["region"] for data in admitted(REGIONS, asked, limit=100))

    assert started == {"east": 40, "north": 30, "west": 30}


FIVE, EAST = hipq.KeyLimit("tenant", 5), {"region": "east"}
A, ONE = {"tenant": "a"}, hipq.KeyLimit("tenant", 1)
REST = hipq.ShareLimit("region", {"east": 0.8}, other=0.2)


@pytest.mark.parametrize(
    ("throttler", "asked", "options", "number"),
    [
        # T23: running jobs count, by their factors.
        (REGIONS, candidates(*[EAST] * 5), {"running": loads(EAST, EAST, EAST)}, 1),
        (REGIONS, candidates(*[EAST] * 5, factor=2), {}, 2),
        (FIVE, candidates(A, A), {"running": loads(A, factor=4)}, 1),
        # One that is heavier than its limit runs when no other of that share or key runs.
        (REGIONS, candidates(EAST, EAST, factor=9), {}, 1),
        (REGIONS, candidates(EAST, factor=9), {"running": loads(EAST)}, 0),
        (FIVE, candidates(A, factor=9), {}, 1),
        (FIVE, candidates(A, factor=9), {"running": loads(A)}, 0),
        # Values that are not named share what is left for others.
        *((REGIONS, candidates(data), {}, 0) for data in ({"region": None}, {}, "text", None, [1])),
        (REST, candidates({"region": "north"}, {}, {"region": ["list"]}), {}, 2),
        # A critical job needs no share, and a queue without a limit has none.
        (REGIONS, candidates(EAST, factor=0), {"running": loads(*[EAST] * 4)}, 1),
        (REGIONS, candidates(*[EAST] * 50), {"limit": 0}, 50),
        # Jobs without the key are not limited; its value may be any JSON.
        *((ONE, candidates(data, data), {}, 2) for data in ({}, {"tenant": None}, "text", [1])),
        *((ONE, candidates(*[{"tenant": v}] * 2), {}, 1) for v in ("", 7, True, ["a"], {"b": 1})),
    ],
)
def test_so_many_jobs_are_let_start(
    throttler: Throttler, asked: list[Candidate], options: dict[str, Any], number: int
) -> None:
    assert len(admitted(throttler, asked, **options)) == number


def test_a_shard_divides_what_it_has_of_the_limit() -> None:
    shard, asked = queue(10), candidates(*[EAST] * 5)
    shard.share = Decimal(5)

    assert [type(verdict) for verdict in REGIONS(shard, NOON, [], asked)].count(hipq.Run) == 2


def test_the_reason_names_the_share_that_is_used_up() -> None:
    verdict = REGIONS(queue(10), NOON, loads(*regions(east=4)), candidates(*regions(east=1)))[0]

    assert verdict == hipq.Hold("share of region 'east' is used up: 4 of 4")


def test_each_value_of_the_key_has_the_limit_to_itself() -> None:
    asked = candidates(*[{"tenant": name} for name in "aaabbb"])

    started = Counter(data["tenant"] for data in admitted(hipq.KeyLimit("tenant", 2), asked))

    assert started == {"a": 2, "b": 2}


# Rates


class Starts:
    """A queue whose starts are written down as the scheduler does it."""

    def __init__(self, limit: hipq.RateLimit) -> None:
        self.limit = limit
        self.queue = queue(0)
        self.moments: list[datetime] = []

    def ask(self, now: datetime, number: int, *, latest: timedelta = timedelta()) -> int:
        """Ask whether so many may start, `latest` after now; half of them do at once."""
        found = self.limit(self.queue, now, [], candidates(*[{}] * number))
        count = sum(isinstance(verdict, hipq.Run) for verdict in found)
        if count:
            self.queue.throttler_state = carried_over(self.queue.throttler_state, [self.limit], now)
            self.limit.admitted(self.queue, now, count, now + latest)
        self.moments += [now] * (count // 2) + [now + latest] * (count - count // 2)
        return count

    def since(self, moment: datetime) -> int:
        return sum(start > moment for start in self.moments)


def test_a_start_is_free_again_when_its_seconds_are_over() -> None:
    starts = Starts(hipq.RateLimit(3, per=60))
    starts.ask(NOON, 2)
    starts.ask(NOON + timedelta(seconds=30), 2)

    assert starts.ask(NOON + timedelta(seconds=59.999), 5) == 0
    assert starts.ask(NOON + timedelta(seconds=60), 5) == 2
    assert starts.ask(NOON + timedelta(seconds=90), 5) == 1


def test_each_shard_starts_its_part_of_the_rate() -> None:
    starts = Starts(hipq.RateLimit(5, per=60))
    starts.queue.shard_count = 2  # as its database says

    assert starts.ask(NOON, 5) == 2
    assert starts.ask(NOON + timedelta(seconds=59), 5) == 0


@pytest.mark.parametrize("count", [1, 250])
def test_starts_that_a_clock_noted_far_ahead_hold_nobody_once_it_is_right_again(count: int) -> None:
    starts = Starts(hipq.RateLimit(count, per=60))
    starts.ask(NOON + timedelta(days=365), count)

    assert starts.ask(NOON, count + 1) == count
    assert starts.ask(NOON + timedelta(seconds=1), count) == 0
    assert starts.ask(NOON + timedelta(seconds=61), count) == count


PARTS = st.integers(0, 450) | st.sampled_from([1, 3, 395, 397, 398, 399, 400, 401])
STEPS = st.lists(st.tuples(PARTS, st.integers(1, 400)), max_size=12)
"""How many four-hundredths of the window pass, and how many jobs want to start then."""
LATE_STEPS = st.lists(st.tuples(PARTS, st.integers(1, 400), st.integers(0, 400)), max_size=12)
"""The same, and how many four-hundredths later they may start."""


@given(
    st.sampled_from([1, 2, 5, 100, 101, 250]),
    st.sampled_from([0.5, 1, 7.3, 60]),
    LATE_STEPS,
)
@example(5, 7.3, [(0, 3, 0), (300, 1, 200), (50, 5, 0)])
def test_in_no_window_start_more_than_the_count(
    count: int, per: float, steps: list[tuple[int, int, int]]
) -> None:
    """Also where one worker takes longer to start them than another."""
    starts, now = Starts(hipq.RateLimit(count, per=per)), NOON
    for parts, number, latest in steps:
        now += timedelta(seconds=per * parts / 400)
        starts.ask(now, number, latest=timedelta(seconds=per * latest / 400))

    # Half-open: what started exactly `per` seconds ago is free again.
    moments = sorted(starts.moments)
    for first, next_free in zip(moments, moments[count:], strict=False):
        assert next_free - first >= timedelta(seconds=per)


@given(st.sampled_from([1, 5, 100, 101, 250]), st.sampled_from([0.5, 7.3, 60]), STEPS)
def test_no_start_is_held_back_for_longer_than_a_hundredth_of_the_window(
    count: int, per: float, steps: list[tuple[int, int]]
) -> None:
    """Against all starts, exactly; up to a hundred it is exact itself."""
    starts, now = Starts(hipq.RateLimit(count, per=per)), NOON
    window = timedelta(seconds=per if count <= 100 else per * 1.01)
    for parts, number in steps:
        now += timedelta(seconds=per * parts / 400)
        free = count - starts.since(now - window)

        assert starts.ask(now, number) >= min(free, number)


def test_of_many_starts_about_a_hundred_moments_are_kept() -> None:
    starts = Starts(hipq.RateLimit(100_000, per=60))
    for tenth in range(1_000):
        starts.ask(NOON + timedelta(seconds=tenth / 10), 7)

    kept = starts.queue.throttler_state["RateLimit(100000, 60)"]
    assert 90 < len(kept) <= 102
    assert sum(number for _, number in kept) >= starts.since(NOON + timedelta(seconds=39.9))


def test_a_limit_goes_on_from_the_starts_of_the_one_in_whose_place_it_comes() -> None:
    starts, now = Starts(hipq.RateLimit(10, per=60)), NOON
    assert starts.ask(now, 4) == 4

    starts.limit = hipq.RateLimit(6, per=90)
    assert starts.ask(now + timedelta(seconds=1), 10) == 2

    starts.limit = hipq.RateLimit(200, per=60)  # whose moments are rounded up
    assert starts.ask(now + timedelta(seconds=2), 400) == 194


def test_a_limit_that_comes_back_goes_on_from_the_starts_meanwhile() -> None:
    starts, often = Starts(hipq.RateLimit(10, per=3_600)), hipq.RateLimit(8, per=3_600)
    assert starts.ask(NOON, 4) == 4
    starts.limit, first = often, starts.limit
    assert starts.ask(NOON + timedelta(seconds=1), 4) == 4

    starts.limit = first
    assert starts.ask(NOON + timedelta(seconds=2), 10) == 2


def test_a_limit_that_comes_back_knows_what_a_shorter_one_has_forgotten() -> None:
    starts = Starts(hipq.RateLimit(10, per=3_600))
    assert starts.ask(NOON, 6) == 6
    starts.limit, first = hipq.RateLimit(8, per=1), starts.limit
    assert starts.ask(NOON + timedelta(seconds=60), 3) == 3

    starts.limit = first
    assert starts.ask(NOON + timedelta(seconds=70), 10) == 1


def test_the_starts_of_a_limit_inside_of_another_throttler_stay() -> None:
    shared, inner = queue(0), hipq.RateLimit(2, per=60)
    for second in range(2):
        shared.throttler_state = carried_over(
            shared.throttler_state, [hipq.RateLimit(9, per=5)], NOON
        )
        inner.admitted(shared, NOON + timedelta(seconds=second), 1)

    state = carried_over(shared.throttler_state, [hipq.RateLimit(8, per=5)], NOON)

    assert len(state["RateLimit(2, 60)"]) == 2


# What may be written


INFINITE = float("inf")


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        (hipq.ShareLimit, ("region", {"east": 1.5}), "share 1.5 of 'east'"),
        (hipq.ShareLimit, ("region", {"east": 0.4}, -1), "share -1 of 'other'"),
        (hipq.KeyLimit, ("tenant", 0), "the limit must be a number above 0"),
        (hipq.KeyLimit, ("tenant", "5"), "the limit must be a number above 0"),
        (hipq.RateLimit, (0, 60), "at least 1"),
        (hipq.RateLimit, (1.5, 60), "at least 1"),
        (hipq.RateLimit, (5, 0), "seconds above 0"),
        (hipq.RateLimit, (5, INFINITE), "seconds above 0"),
        (hipq.RateLimit, (5, 1e13), "seconds above 0"),
    ],
)
def test_a_throttler_that_makes_no_sense_is_refused(
    kind: Callable[..., object], arguments: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        kind(*arguments)
