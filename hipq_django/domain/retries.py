"""What may follow an error: the decisions of a retry handler and the shipped policies.

Everything here is pure. The rules are those of the original hipq.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

from hipq_django.domain.class_names import dotted_name
from hipq_django.domain.validation import aware_moment, checked_seconds
from hipq_django.exceptions import InvalidJobError, WorkerLost

MAX_LOSSES: Final = 3
"""How often in a row a job without a retry handler may lose its worker: it may have killed it."""

UNCOUNTED: Final = "bystander"
"""The kind of an attempt that lost its worker beside a job which is likelier to have killed it."""

LOSSES: Final = frozenset({"worker_lost"})
INTERRUPTIONS: Final = LOSSES | {"timed_out"}
"""The kinds of attempts that the job itself did not end."""


class _Wait:
    """The type of `WAIT`."""

    def __repr__(self) -> str:
        return "hipq_django.WAIT"

    def __reduce__(self) -> str:
        return "WAIT"


WAIT: Final = _Wait()
"""Returned by a handler: the request was sent, and the job stays running until the answer comes."""


class Snooze(Exception):  # noqa: N818 - it is a wish of the handler, not an error
    """Raised by a handler: puts the job back for `seconds`; this does not count as a failure."""

    def __init__(self, seconds: float) -> None:
        self.seconds = checked_seconds("Snooze", seconds)
        super().__init__(f"snoozed for {seconds} s")


@dataclass(frozen=True, slots=True)
class RetryIn:
    """Try again `seconds` from now.

    If a response handler failed, only that runs again, on the stored answer; with `resend` the
    handler runs and sends the request again.
    """

    seconds: float
    resend: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "seconds", checked_seconds("RetryIn", self.seconds))


@dataclass(frozen=True, slots=True)
class RetryAt:
    """Try again at `moment`, an aware datetime; `resend` as for `RetryIn`."""

    moment: datetime
    resend: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "moment", aware_moment("RetryAt", self.moment))


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Do not try again: the job becomes final with its error."""


Decision = RetryIn | RetryAt | GiveUp


@dataclass(frozen=True, slots=True)
class Failure:
    """What is known of a failed attempt.

    `count` is the number of failed attempts so far, including this one; `losses` is how many of the
    last ones in a row lost their worker; `interrupted` is how many in a row lost it or timed out;
    `classes` are the dotted names of the exception's class and its bases. An attempt that was a
    `bystander`, because a job beside it is likelier to have killed the worker, is in none of these
    numbers.
    """

    count: int
    losses: int
    classes: tuple[str, ...]
    interrupted: int = 0
    bystander: bool = False
    lost_decisions: int = 0
    """How many workers died while they decided what follows it."""

    def is_a(self, *classes: type[BaseException]) -> bool:
        """Return whether the exception is an instance of one of `classes`."""
        return _is_any(tuple(self.classes), classes)


class Counts(NamedTuple):
    """The numbers of a job's failed attempts, see `Failure`."""

    failures: int = 0
    losses: int = 0
    interrupted: int = 0

    def with_attempt(self, kind: str) -> Counts:
        """Return the counts after one more failed attempt of this kind."""
        if kind == UNCOUNTED:
            return self
        return Counts(
            self.failures + 1,
            self.losses + 1 if kind in LOSSES else 0,
            self.interrupted + 1 if kind in INTERRUPTIONS else 0,
        )


def failure_of(counts: Counts, kind: str, classes: Sequence[str]) -> Failure:
    """Return the failure of this `kind` that a job had last; the counts include it."""
    bystander = kind == UNCOUNTED
    return Failure(
        count=counts.failures or int(not bystander),
        losses=counts.losses,
        classes=tuple(classes),
        interrupted=counts.interrupted,
        bystander=bystander,
    )


def sole(error: BaseException) -> BaseException:
    """Return what a group holds if that is one exception, as of a task group; else the error."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


@lru_cache(maxsize=2_000)
def _is_any(names: tuple[str, ...], classes: tuple[type, ...]) -> bool:
    """Asked of each failure several times, nearly always the same."""
    return any(dotted_name(kind) in names for kind in classes)


class RetryPolicy(Protocol):
    """Decides after a failure, without code of the project."""

    def decide(self, failure: Failure) -> Decision:
        """Return `RetryIn`, `RetryAt` or `GiveUp`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limited:
    """What the policies share: how often to retry, and after which exceptions."""

    max_attempts: int = 5
    only: tuple[type[BaseException], ...] = field(default=(Exception,), repr=False)

    def __post_init__(self) -> None:
        most = self.max_attempts
        if not isinstance(most, int) or isinstance(most, bool) or most < 1:
            raise InvalidJobError(f"max_attempts={most!r}: give a whole number of at least 1.")
        only = self.only if isinstance(self.only, tuple | list) else (self.only,)
        for kind in only:
            if not (isinstance(kind, type) and issubclass(kind, BaseException)):
                raise InvalidJobError(
                    f"only={kind!r}: give exception classes, for example OSError."
                )
        object.__setattr__(self, "only", tuple(only))

    def _allows(self, failure: Failure) -> bool:
        """A job that lost this many workers may be killing them, and gets no further one."""
        may_try = failure.count < self.max_attempts and failure.losses < MAX_LOSSES
        return may_try and failure.is_a(*self.only)


_CHANCE = random.uniform
"""Kept, because each look at it makes another method."""


@dataclass(frozen=True, slots=True)
class Exponential(_Limited):
    """Retry after `first_seconds`, then `factor` times as long each time, at most `cap_seconds`.

    `jitter` is the random share of each delay (0 none, 1 all of it), so that jobs that failed
    together do not come back together. `max_attempts` counts every failed attempt, including the
    first; `only` lists the exception classes after which to retry.
    """

    first_seconds: float = 10.0
    factor: float = 2.0
    cap_seconds: float = 3_600.0
    jitter: float = 0.2
    draw: Callable[[float, float], float] = field(default=_CHANCE, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        _Limited.__post_init__(self)
        checked_seconds("Exponential first_seconds", self.first_seconds)
        checked_seconds("Exponential cap_seconds", self.cap_seconds)
        if not 1 <= self.factor <= 1_000:
            raise InvalidJobError(f"Exponential factor={self.factor!r}: give 1 to 1,000.")
        if not 0 <= self.jitter <= 1:
            raise InvalidJobError(f"Exponential jitter={self.jitter!r}: give a share from 0 to 1.")

    def decide(self, failure: Failure) -> Decision:
        """Return `RetryIn` the delay that follows this failure, or `GiveUp`."""
        if not self._allows(failure):
            return GiveUp()
        delay = self.delay(failure.count)
        return RetryIn(delay - delay * self.jitter + self.draw(0, delay * self.jitter))

    def delay(self, failures: int) -> float:
        """Return the delay in seconds before jitter; jitter only makes it shorter."""
        try:
            delay = self.first_seconds * self.factor ** max(failures - 1, 0)
        except OverflowError:
            return self.cap_seconds if self.first_seconds else 0.0
        return min(delay, self.cap_seconds)


@dataclass(frozen=True, slots=True)
class Fixed(_Limited):
    """Retry `seconds` after each failure; `max_attempts` and `only` as for `Exponential`."""

    seconds: float = 60.0

    def __post_init__(self) -> None:
        _Limited.__post_init__(self)
        checked_seconds("Fixed", self.seconds)

    def decide(self, failure: Failure) -> Decision:
        """Return `RetryIn(seconds)` or `GiveUp`."""
        return RetryIn(self.seconds) if self._allows(failure) else GiveUp()


@dataclass(frozen=True, slots=True)
class Never:
    """Never retry, not even a job whose worker was lost."""

    def decide(self, failure: Failure) -> Decision:
        """Return `GiveUp`."""
        del failure
        return GiveUp()


def is_shipped(policy: RetryPolicy | None) -> bool:
    """Return whether a policy, or its absence, decides without code of the project."""
    if type(policy) is Exponential:
        return policy.draw is _CHANCE
    return policy is None or type(policy) in (Fixed, Never)


def has_chance(policy: RetryPolicy | None) -> bool:
    """Return whether a shipped policy may decide otherwise about the same failure."""
    return type(policy) is Exponential


def decide(policy: RetryPolicy | None, failure: Failure) -> Decision:
    """Return the decision of a job type without a retry handler.

    A lost worker is usually not the job's fault: unless the policy covers `WorkerLost`, the job
    runs again, until it has lost so many workers in a row that it may be killing them.
    """
    lost = failure.is_a(WorkerLost)
    if policy is None or (lost and not _covers_lost_workers(policy)):
        again = lost and failure.losses < MAX_LOSSES
        return RetryIn(0) if again else GiveUp()
    return policy.decide(failure)


def decide_interrupted(failure: Failure) -> Decision:
    """Return the decision about a job whose answer has come, if its policy would give up.

    An answer that came in time is not dropped because a worker died, or was slow: the response
    handler gets it, unless it was interrupted too often itself.
    """
    again = failure.bystander or 0 < failure.interrupted < MAX_LOSSES
    return RetryIn(0) if again else GiveUp()


def _covers_lost_workers(policy: RetryPolicy) -> bool:
    only = getattr(policy, "only", (WorkerLost,))
    return issubclass(WorkerLost, tuple(only))


def with_max_attempts(policy: RetryPolicy | None, failure: Failure, decision: Decision) -> Decision:
    """Return `decision`, or `GiveUp` if the policy's `max_attempts` is used up.

    A job type may have both a retry handler and a policy: the handler decides, and the policy
    bounds how often.
    """
    limit = getattr(policy, "max_attempts", None)
    return GiveUp() if limit is not None and failure.count >= limit else decision


def retry_time(decision: RetryIn | RetryAt, now: datetime) -> datetime:
    """Return the moment of the next attempt, never before `now`."""
    if isinstance(decision, RetryAt):
        return max(decision.moment, now)
    return now + timedelta(seconds=decision.seconds)
