"""What may follow an error: decisions, policies and how they count."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import reduce

import pytest
from hypothesis import given, strategies as st

import hipq_django as hipq
from hipq_django.domain.class_names import class_names, stored_exception
from hipq_django.domain.retries import (
    Counts,
    Decision,
    Failure,
    RetryPolicy,
    decide,
    failure_of,
    retry_time,
    with_max_attempts,
)
from hipq_django.domain.validation import MAX_SECONDS
from hipq_django.exceptions import InvalidJobError, JobTimeout, WorkerLost

NOON = datetime(2025, 1, 6, 12, tzinfo=UTC)


def failure(
    count: int = 1, kind: type[BaseException] = RuntimeError, *, losses: int = 0
) -> Failure:
    return Failure(count, losses, class_names(kind))


def delays(policy: hipq.Exponential, number: int) -> list[float]:
    decisions = [policy.decide(failure(count)) for count in range(1, number + 1)]
    return [decision.seconds for decision in decisions if isinstance(decision, hipq.RetryIn)]


def test_exponential_doubles_the_delay_up_to_the_cap() -> None:
    policy = hipq.Exponential(max_attempts=9, cap_seconds=100, jitter=0)

    assert delays(policy, 6) == [10, 20, 40, 80, 100, 100]


@given(st.integers(1, 1_000_000), st.floats(0, 1), st.floats(0, 1))
def test_jitter_only_shortens_the_delay_and_by_no_more_than_its_share(
    count: int, jitter: float, chance: float
) -> None:
    policy = hipq.Exponential(
        max_attempts=2_000_000, jitter=jitter, draw=lambda low, high: low + chance * (high - low)
    )

    decision = policy.decide(failure(count))

    longest = policy.delay(count)
    assert isinstance(decision, hipq.RetryIn)
    assert longest * (1 - jitter) <= decision.seconds * 1.000001
    assert decision.seconds <= longest * 1.000001 <= 3_600.01


def test_fixed_waits_the_same_each_time() -> None:
    policy = hipq.Fixed(seconds=30, max_attempts=3)

    assert [policy.decide(failure(count)) for count in (1, 2, 3)] == [
        hipq.RetryIn(30),
        hipq.RetryIn(30),
        hipq.GiveUp(),
    ]


@pytest.mark.parametrize("policy", [hipq.Exponential, hipq.Fixed])
def test_a_policy_retries_only_the_exceptions_that_it_names(
    policy: Callable[..., RetryPolicy],
) -> None:
    only = policy(only=(OSError, LookupError))

    assert isinstance(only.decide(failure(kind=OSError)), hipq.RetryIn)
    assert isinstance(only.decide(failure(kind=ConnectionResetError)), hipq.RetryIn)
    assert isinstance(only.decide(failure(kind=KeyError)), hipq.RetryIn)
    assert only.decide(failure(kind=ValueError)) == hipq.GiveUp()


# Without a retry handler


class Tomorrow:
    """A policy of a project."""

    def decide(self, failure: Failure) -> Decision:
        return hipq.RetryIn(86_400 * failure.count)


OF_OS_ERRORS, FEW = hipq.Fixed(only=(OSError,)), hipq.Fixed(seconds=30, max_attempts=2)
MANY = hipq.Exponential(jitter=0, max_attempts=99)
NOW, END = hipq.RetryIn(0), hipq.GiveUp()


@pytest.mark.parametrize(
    ("policy", "failed", "decision"),
    [
        (None, failure(), END),  # T9
        (hipq.Never(), failure(), END),
        # A lost worker is not the job's fault, and no policy was asked for it.
        (None, failure(7, WorkerLost, losses=2), NOW),
        (OF_OS_ERRORS, failure(7, WorkerLost, losses=2), NOW),
        # But a job that has lost three in a row may be what kills them.
        (OF_OS_ERRORS, failure(3, WorkerLost, losses=3), END),
        (MANY, failure(2, WorkerLost, losses=2), hipq.RetryIn(20)),
        (MANY, failure(3, WorkerLost, losses=3), END),
        # A policy for all exceptions decides about it too.
        (FEW, failure(1, WorkerLost, losses=1), hipq.RetryIn(30)),
        (hipq.Never(), failure(1, WorkerLost, losses=1), END),
        (Tomorrow(), failure(2, WorkerLost, losses=9), hipq.RetryIn(172_800)),
    ],
)
def test_what_follows_where_no_retry_handler_decides(
    policy: RetryPolicy | None, failed: Failure, decision: Decision
) -> None:
    assert decide(policy, failed) == decision


@pytest.mark.parametrize(
    ("kinds", "known"),
    [
        (["raised"], (1, 0, 0, False)),
        (["worker_lost", "timed_out", "worker_lost", "raised"], (4, 1, 3, False)),
        (["worker_lost", "bystander", "worker_lost"], (2, 2, 2, False)),
        (["bystander", "worker_lost", "raised"], (2, 1, 1, True)),
    ],
)
def test_an_attempt_of_a_bystander_is_counted_nowhere(
    kinds: list[str], known: tuple[int, int, int, bool]
) -> None:
    """The last attempt is the first of these."""
    counts = reduce(Counts.with_attempt, reversed(kinds), Counts())

    last = failure_of(counts, kinds[0], ["OSError"])

    assert (last.count, last.losses, last.interrupted, last.bystander) == known


# With a retry handler


def test_the_policy_limits_what_the_retry_handler_wants() -> None:
    policy, wish = hipq.Fixed(max_attempts=3), hipq.RetryIn(5)

    assert with_max_attempts(policy, failure(2), wish) == wish
    assert with_max_attempts(policy, failure(3), wish) == hipq.GiveUp()


def test_a_retry_is_never_in_the_past() -> None:
    past = NOON - timedelta(days=1)

    assert retry_time(hipq.RetryAt(past), NOON) == NOON
    assert retry_time(hipq.RetryAt(NOON + timedelta(hours=1)), NOON) == NOON + timedelta(hours=1)
    assert retry_time(hipq.RetryIn(90), NOON) == NOON + timedelta(seconds=90)


# What may be written

NOT_SECONDS = [-1, float("nan"), "60", None, True, MAX_SECONDS + 1]


@pytest.mark.parametrize("seconds", NOT_SECONDS)
@pytest.mark.parametrize("kind", [hipq.RetryIn, hipq.Snooze])
def test_a_delay_that_is_none_is_refused(kind: Callable[..., object], seconds: object) -> None:
    with pytest.raises(InvalidJobError, match="give seconds from 0 to 316,224,000"):
        kind(seconds)


@pytest.mark.parametrize("moment", [datetime(2025, 1, 1), "tomorrow", None, 5])  # noqa: DTZ001 - what is refused
def test_a_moment_that_is_none_is_refused(moment: object) -> None:
    with pytest.raises(InvalidJobError, match="aware datetime"):
        hipq.RetryAt(moment)  # type: ignore[arg-type]  # what is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_attempts": 0}, "max_attempts=0: give a whole number of at least 1"),
        ({"max_attempts": True}, "max_attempts=True"),
        ({"only": ("OSError",)}, "only='OSError': give exception classes"),
        ({"first_seconds": -1}, "first_seconds"),
        ({"cap_seconds": float("nan")}, "cap_seconds"),
        ({"factor": 0.5}, "factor=0.5: give 1 to 1,000"),
        ({"jitter": 1.5}, "jitter=1.5: give a share from 0 to 1"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidJobError, match=message):
        hipq.Exponential(**options)  # type: ignore[arg-type]  # any options


def test_wait_is_one_value_even_after_pickling() -> None:
    assert pickle.loads(pickle.dumps(hipq.WAIT)) is hipq.WAIT
    assert repr(hipq.WAIT) == "hipq_django.WAIT"


@pytest.mark.parametrize(
    ("error", "text"),
    [("KeyError: 'x'", "'x'"), ("exception KeyError", ""), ("something", "something")],
)
def test_a_stored_exception_has_the_name_of_its_class_and_its_text_once(
    error: str, text: str
) -> None:
    made = stored_exception(("builtins.KeyError",), error)

    assert (type(made).__name__, type(made).__module__, str(made)) == ("KeyError", "builtins", text)
    assert type(stored_exception(class_names(JobTimeout), "late")) is JobTimeout
