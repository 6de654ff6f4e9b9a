"""Which jobs may start: weights under a limit, and throttlers that must agree."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, strategies as st

import hipq_django as hipq
from hipq_django.domain.throttling import (
    Candidate,
    RunningJob,
    Throttler,
    ThrottlerError,
    Verdict,
    admit_by_weight,
    ask,
    fits,
)
from hipq_django.models import Queue

NOON = datetime(2025, 1, 6, 12, tzinfo=UTC)
QUEUE = Queue(name="bank", throttle_limit=10)
RUN = hipq.Run()

factors = st.lists(st.sampled_from([Decimal(n) for n in ("0", "0.5", "1", "2", "7", "30")]))


def weights(*numbers: float) -> list[Decimal]:
    return [Decimal(str(number)) for number in numbers]


def candidates(*data: Any) -> list[Candidate]:
    return [
        Candidate("charge", "NONE", item, Decimal(1), number, NOON, 100, 0)
        for number, item in enumerate(data, start=1)
    ]


def verdicts(
    asked: Sequence[Candidate], *throttlers: Any, running: Sequence[RunningJob] = ()
) -> Any:
    return list(ask(throttlers, QUEUE, NOON, running, asked).values())


def always(verdict: Verdict) -> Throttler:
    return lambda queue, now, running, candidates: [verdict] * len(candidates)


# Weights


@pytest.mark.parametrize(
    ("numbers", "load", "limit", "admitted"),
    [
        ((1, 1, 1), 0, 2, [0, 1]),
        ((2, 2, 2), 0, 5, [0, 1]),
        ((0.5, 0.5, 0.5), 0, 1, [0, 1]),
        ((1, 1), 10, 10, []),
        ((1, 3, 1), 7, 10, [0]),
        ((5, 1, 1), 8, 10, []),  # T26: a heavy job is not overtaken by a light one
        ((0.1,) * 11, 0, 1, list(range(10))),  # tenths are summed exactly
    ],
)
def test_jobs_are_admitted_in_order_while_their_sum_fits(
    numbers: tuple[float, ...], load: float, limit: float, admitted: list[int]
) -> None:
    """T20."""
    assert admit_by_weight(weights(*numbers), *weights(load, limit)) == admitted


@pytest.mark.parametrize("limit", [0, -1, 0.5, 0.999])
def test_a_limit_below_one_is_none(limit: float) -> None:
    """T20."""
    assert admit_by_weight(weights(1, 50, 0), *weights(1_000, limit)) == [0, 1, 2]


def test_a_critical_job_is_admitted_wherever_it_stands() -> None:
    """T20: factor 0."""
    assert admit_by_weight(weights(1, 0, 1, 0), *weights(10, 10)) == [1, 3]


def test_a_job_heavier_than_the_limit_runs_alone() -> None:
    """T26."""
    assert admit_by_weight(weights(30, 1), *weights(0, 10)) == [0]
    assert admit_by_weight(weights(30), *weights(1, 10)) == []
    assert not fits(*weights(1, 30, 10))


@pytest.mark.parametrize(
    ("numbers", "load", "share", "admitted"),
    [
        ((1, 1, 1), 0, 2, [0, 1]),
        ((1, 0, 1), 0, 0, [1]),
        ((1,), 3, 2, []),
        ((30, 1), 0, 10, [0]),
        ((30, 1), 0, 9.999, []),  # another shard may run something
    ],
)
def test_a_shard_admits_under_its_share_of_the_limit(
    numbers: tuple[float, ...], load: float, share: float, admitted: list[int]
) -> None:
    assert admit_by_weight(weights(*numbers), *weights(load, 10, share)) == admitted
    assert admit_by_weight(weights(*numbers), *weights(load, 0, share)) == [*range(len(numbers))]


@given(factors, st.sampled_from(weights(1, 2, 10, 25)), st.sampled_from(weights(0, 1, 10, 40)))
def test_the_admitted_never_exceed_the_limit_unless_one_runs_alone(
    numbers: list[Decimal], limit: Decimal, load: Decimal
) -> None:
    chosen = [numbers[i] for i in admit_by_weight(numbers, load, limit)]

    heavy = [factor for factor in chosen if factor > 0]
    assert load + sum(heavy) <= limit or not heavy or (load == 0 and len(heavy) == 1)


@given(factors, st.sampled_from(weights(1, 2, 10, 25)), st.sampled_from(weights(0, 1, 10, 40)))
def test_who_is_admitted_stood_before_all_who_are_not(
    numbers: list[Decimal], limit: Decimal, load: Decimal
) -> None:
    admitted = admit_by_weight(numbers, load, limit)

    counted = [i for i, factor in enumerate(numbers) if factor > 0]
    chosen = [i for i in admitted if numbers[i] > 0]
    assert chosen == counted[: len(chosen)]
    assert [i for i, factor in enumerate(numbers) if not factor] == [
        i for i in admitted if not numbers[i]
    ]


# Asking throttlers


def test_the_first_throttler_that_objects_gives_the_reason() -> None:
    first, second = hipq.Hold("first"), hipq.Reschedule(NOON, "second")

    assert verdicts(candidates("a"), always(first), always(second)) == [first]
    assert verdicts(candidates("a"), always(second), always(first)) == [second]
    assert verdicts(candidates("a"), always(RUN), always(second)) == [second]


def test_a_throttler_sees_the_queue_the_time_the_running_and_the_candidates() -> None:
    seen: list[Any] = []
    running = [RunningJob("charge", "k", {"a": 1}, Decimal(2))]
    asked = candidates({"region": "east"})

    def look(*arguments: Any) -> list[Verdict]:
        seen.extend(arguments)
        return [RUN]

    verdicts(asked, look, running=running)

    assert seen == [QUEUE, NOON, running, asked]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy")), max_size=12))
def test_two_throttlers_leave_nothing_waiting_that_both_would_let_run(
    pairs: list[tuple[str, str]],
) -> None:
    limits = [hipq.KeyLimit("tenant", 1), hipq.KeyLimit("region", 1)]
    asked = candidates(*({"tenant": tenant, "region": region} for tenant, region in pairs))

    found = verdicts(asked, *limits)

    admitted = [RunningJob(c.job_type, c.job_key, c.job_data, c.throttle_factor)
                for c, verdict in zip(asked, found, strict=True) if verdict == RUN]  # fmt: skip
    held = [c for c, verdict in zip(asked, found, strict=True) if verdict != RUN]
    for key in ("tenant", "region"):
        values = [load.job_data[key] for load in admitted]
        assert len(values) == len(set(values))
    assert all(verdicts([c], *limits, running=admitted) != [RUN] for c in held)


def raising(*_: Any) -> list[Verdict]:
    raise KeyError("region")


@pytest.mark.parametrize(
    ("throttler", "message"),
    [
        (raising, "throttler raising raised KeyError: 'region'"),
        (lambda *_: sys.exit(1), "raised SystemExit"),
        (lambda *_: [], "returned 0 decisions for 2 candidates"),
        (
            lambda *_: [RUN, True],
            r"raised TypeError: True is no decision; return Run",
        ),
        (lambda *_: [RUN, hipq.Reschedule("soon")], r"Reschedule 'soon': give an aware"),  # type: ignore[arg-type]  # what is refused
        (lambda *_: [RUN, hipq.Reschedule(datetime(2030, 1, 1))], "give an aware datetime"),  # noqa: DTZ001 - what is refused
    ],
)
def test_a_throttler_that_misbehaves_is_named_with_what_it_did(
    throttler: Callable[..., Any], message: str
) -> None:
    with pytest.raises(ThrottlerError, match=message):
        verdicts(candidates("a", "b"), throttler)
