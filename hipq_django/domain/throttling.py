"""Which due jobs may start now: weights under a limit, and throttlers. Pure.

The rules are those of the original hipq. A throttler is any callable
`throttler(queue, now, running, candidates)` that returns one decision per candidate, in order.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from hipq_django.domain.serialization import error_of, repr_of
from hipq_django.domain.validation import ABOVE_ZERO, MAX_SECONDS, aware_moment, number_in
from hipq_django.exceptions import ConfigurationError, HipqError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hipq_django.models import Job, Queue


# Not frozen: that would cost three times as much, and there is one for each job.
@dataclass(slots=True)
class RunningJob:
    """What a throttler sees of a running job; a candidate has more."""

    job_type: str
    job_key: str
    job_data: Any = field(repr=False)
    throttle_factor: Decimal


@dataclass(slots=True)
class Candidate(RunningJob):
    """A due job; `scheduled_run_time`, `priority` and `attempt` are those of the waiting job."""

    id: int
    scheduled_run_time: datetime
    priority: int
    attempt: int


def running_job_of(job: Job) -> RunningJob:
    """Return what throttlers see of a job that runs."""
    return RunningJob(job.job_type.name, job.job_key, job.job_data, job.throttle_factor)


def candidate_of(job: Job) -> Candidate:
    """Return what throttlers see of a job that is due."""
    return Candidate(
        job.job_type.name,
        job.job_key,
        job.job_data,
        job.throttle_factor,
        job.id,
        job.scheduled_run_time,
        job.priority,
        job.attempt,
    )


@dataclass(frozen=True, slots=True)
class Run:
    """The job may start."""


RUN = Run()


@dataclass(frozen=True, slots=True)
class Hold:
    """The job does not start now; the throttler is asked again at the next pass."""

    reason: str


@dataclass(frozen=True, slots=True)
class Reschedule:
    """The job moves to a later time; this is neither an error nor an attempt."""

    at: datetime
    reason: str = ""


Verdict = Run | Hold | Reschedule


class Throttler(Protocol):
    """Decides which candidates may start, given the running jobs; all throttlers must agree."""

    def __call__(
        self,
        queue: Queue,
        now: datetime,
        running: Sequence[RunningJob],
        candidates: Sequence[Candidate],
    ) -> Sequence[Verdict]:
        """Return one verdict per candidate, in their order."""


MAX_DELAY_SECONDS = 5.0
"""How much later than its claim a job may start, at most."""


class ThrottlerError(HipqError):
    """A throttler raised, or did not return one verdict per candidate."""


def ask(
    throttlers: Sequence[Throttler],
    queue: Queue,
    now: datetime,
    running: Sequence[RunningJob],
    candidates: Sequence[Candidate],
) -> dict[int, Verdict]:
    """Return the verdict on each candidate's id, all throttlers agreeing.

    A candidate that a later throttler holds must not use up the room that an earlier one gave
    it, or it would block others for ever; so the earlier ones are asked again without it.
    """
    bound = [partial(throttler, queue, now, running) for throttler in throttlers]
    verdicts: dict[int, Verdict] = {}
    while True:
        asked = [c for c in candidates if c.id not in verdicts]
        refused = _ask_in_turn(bound, asked)
        if not any(turn for turn, _ in refused.values()):
            break
        verdicts |= {pk: verdict for pk, (turn, verdict) in refused.items() if turn}
    verdicts |= {pk: verdict for pk, (_, verdict) in refused.items()}
    return {c.id: verdicts.get(c.id, RUN) for c in candidates}


def _ask_in_turn(
    throttlers: Sequence[partial[Sequence[Verdict]]], candidates: Sequence[Candidate]
) -> dict[int, tuple[int, Verdict]]:
    """Return which throttler, counted from 0, refuses which candidate, and how."""
    refused: dict[int, tuple[int, Verdict]] = {}
    for turn, throttler in enumerate(throttlers):
        left = [c for c in candidates if c.id not in refused]
        if not left:
            break
        for candidate, verdict in zip(left, _verdicts(throttler, left), strict=True):
            if not isinstance(verdict, Run):
                refused[candidate.id] = (turn, verdict)
    return refused


def _verdicts(
    throttler: partial[Sequence[Verdict]], candidates: Sequence[Candidate]
) -> list[Verdict]:
    name = getattr(throttler.func, "__qualname__", None) or repr_of(throttler.func)
    try:
        verdicts = [v if v is RUN else _checked_verdict(v) for v in throttler(candidates)]
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit() in a throttler blocks the queue only
        raise ThrottlerError(f"throttler {name} raised {error_of(error)}") from error
    if len(verdicts) != len(candidates):
        raise ThrottlerError(
            f"throttler {name} returned {len(verdicts)} decisions for {len(candidates)} "
            "candidates; return one for each, in their order."
        )
    return verdicts


def _checked_verdict(verdict: object) -> Verdict:
    if not isinstance(verdict, Verdict):
        raise TypeError(
            f"{repr_of(verdict)} is no decision; return Run(), Hold(reason) or "
            "Reschedule(at, reason)."
        )
    if isinstance(verdict, Reschedule):
        return Reschedule(aware_moment("Reschedule", verdict.at), str(verdict.reason))
    return verdict


def fits(factor: Decimal, load: Decimal, limit: Decimal, share: Decimal | None = None) -> bool:
    """Return whether a job may start under `limit` while `load` is running.

    A limit below 1 means no limit; factor 0 is critical and never held; a job with a factor
    above the limit runs when nothing else runs. A shard may use its `share` of the limit; where
    that is the whole limit, no other shard runs anything.

    The engines say the same in SQL, in `probe_queues` and in `claim_fitting`: the tests
    `test_in_a_strict_queue_the_first_due_job_must_fit` and
    `test_of_a_limited_queue_the_first_that_fit_are_claimed_at_once` hold them to it.
    """
    room = (limit if share is None else share) - load
    return limit < 1 or factor == 0 or min(factor, limit) <= room


def admit_by_weight(
    factors: Sequence[Decimal], load: Decimal, limit: Decimal, share: Decimal | None = None
) -> list[int]:
    """Return the indexes of the jobs that may start, given in strict order.

    The first job that does not fit ends the admission, so that a heavy job is not overtaken by
    lighter ones for ever; only critical jobs (factor 0) pass it. In a queue with a limit alone
    PostgreSQL decides the same, see `engines.statements.claim_fitting`.
    """
    admitted: list[int] = []
    full = False
    for index, factor in enumerate(factors):
        if factor > 0:
            full = full or not fits(factor, load, limit, share)
            if full:
                continue
            load += factor
        admitted.append(index)
    return admitted


@dataclass(frozen=True, slots=True)
class ShareLimit:
    """Gives each value of `job_data[key]` a share of the queue's limit.

    For example regions: east 40 %, north 30 %, west 30 %. Values that are not named
    share `other` (0 by default). A job heavier than its whole share runs when nothing else of that
    share runs. If the queue has no limit there are no shares. Each shard divides what it has of the
    limit.
    """

    key: str
    shares: Mapping[str, float]
    other: float = 0.0

    def __post_init__(self) -> None:
        for name, share in [*self.shares.items(), ("other", self.other)]:
            if not isinstance(share, int | float) or not 0 <= share <= 1:
                raise ConfigurationError(
                    f"ShareLimit({self.key!r}): share {share!r} of {name!r} must be from 0 to 1."
                )

    def __call__(
        self,
        queue: Queue,
        now: datetime,
        running: Sequence[RunningJob],
        candidates: Sequence[Candidate],
    ) -> list[Verdict]:
        """Hold the candidates whose share is used up."""
        del now
        if queue.throttle_limit < 1:
            return [RUN for _ in candidates]
        loads = _loads(running, self._share_of)
        return [self._decide(queue.own_limit, loads, c) for c in candidates]

    def _share_of(self, job: RunningJob) -> str:
        value = _value(job, self.key)
        return value if isinstance(value, str) and value in self.shares else ""

    def _decide(self, limit: Decimal, loads: dict[str, Decimal], candidate: Candidate) -> Verdict:
        name = self._share_of(candidate)
        share = self.shares[name] if name else self.other
        room = limit * Decimal(str(share))
        factor = candidate.throttle_factor
        load = loads[name]
        if factor == 0 or load + factor <= room or (share > 0 and load == 0):
            loads[name] += factor
            return RUN
        value = _value(candidate, self.key)
        return Hold(f"share of {self.key} {value!r} is used up: {_plain(load)} of {_plain(room)}")


@dataclass(frozen=True, slots=True)
class KeyLimit:
    """Lets at most `limit` (sum of factors) run at a time for each value of `job_data[key]`.

    Jobs without that key are not limited.
    """

    key: str
    limit: float

    def __post_init__(self) -> None:
        if not _is_positive(self.limit):
            raise ConfigurationError(
                f"KeyLimit({self.key!r}, {self.limit!r}): the limit must be a number above 0."
            )

    def __call__(
        self,
        queue: Queue,
        now: datetime,
        running: Sequence[RunningJob],
        candidates: Sequence[Candidate],
    ) -> list[Verdict]:
        """Hold the candidates of every value whose limit is reached."""
        del queue, now
        limit = Decimal(str(self.limit))
        loads = _loads(running, self._group_of)
        verdicts: list[Verdict] = []
        for candidate in candidates:
            group, factor = self._group_of(candidate), candidate.throttle_factor
            load = loads[group]
            if group and factor and load and load + factor > limit:
                held = f"{self.key} {group[1:]!r} has {_plain(load)} of {self.limit} running"
                verdicts.append(Hold(held))
            else:
                loads[group] = load + factor
                verdicts.append(RUN)
        return verdicts

    def _group_of(self, job: RunningJob) -> str:
        value = _value(job, self.key)
        return "" if value is None else f"={value}"


@dataclass(frozen=True, slots=True)
class RateLimit:
    """Lets at most `count` jobs start in any `per` seconds, over all workers of the queue.

    Each of n shards lets `count / n` jobs start, rounded down.

    The starts of the last `per` seconds are kept in the queue's row, written by the claim; a limit
    that takes the place of another one goes on from the starts that this one has kept. With a
    `count` above a hundred the moments are rounded up to hundredths of `per`, so that the row stays
    small: a start may come that much later than it could, but never sooner.
    """

    count: int
    per: float

    SPANS: ClassVar = 100
    """Up to this many starts are kept exactly; for more, `per` is divided into this many spans."""

    def __post_init__(self) -> None:
        is_whole = isinstance(self.count, int) and _is_positive(self.count)
        if not is_whole or number_in(self.per, ABOVE_ZERO, MAX_SECONDS) is None:
            raise ConfigurationError(
                f"RateLimit({self.count!r}, per={self.per!r}): give a whole number of jobs of at "
                "least 1 and seconds above 0, at most ten years."
            )

    def __call__(
        self,
        queue: Queue,
        now: datetime,
        running: Sequence[RunningJob],
        candidates: Sequence[Candidate],
    ) -> list[Verdict]:
        """Hold all candidates beyond the starts that are still free."""
        del running
        starts = self._starts(queue, now)
        count = self.count // queue.shard_count
        free = count - sum(number for _, number in starts)
        started = min(max(int(free), 0), len(candidates))
        held = Hold(f"{count} jobs started in the last {self.per:g} s")
        return [RUN if index < started else held for index in range(len(candidates))]

    def admitted(
        self, queue: Queue, now: datetime, count: int, latest: datetime | None = None
    ) -> None:
        """Record that `count` jobs start now, or at some moment until `latest`.

        Called inside the claim's transaction. They count as started at the latest moment.
        """
        starts: dict[float, float] = defaultdict(int)
        last = (latest or now).timestamp()
        for moment, number in [*self._starts(queue, now), (last, count)]:
            starts[self._rounded_up(moment)] += number
        kept = [[moment, starts[moment]] for moment in sorted(starts)]
        queue.throttler_state = {**queue.throttler_state, self._name: kept}

    def _rounded_up(self, moment: float) -> float:
        """Return the end of the span that contains a moment; a span includes its end."""
        if self.count <= self.SPANS:
            return moment
        span = max(int(self.per * 1_000_000 / self.SPANS), 1)
        return -(-round(moment * 1_000_000) // span) * span / 1_000_000

    @property
    def _name(self) -> str:
        return f"{RATE_LIMIT}{self.count}, {self.per:g})"

    def _starts(self, queue: Queue, now: datetime) -> list[list[float]]:
        since = (now - timedelta(seconds=self.per)).timestamp()
        # Starts that no clock of today has noted: it was ahead, and has been set back since.
        until = now.timestamp() + self.per + MAX_DELAY_SECONDS
        return [s for s in self._kept(queue.throttler_state) if since < s[0] <= until]

    def _kept(self, state: Mapping[str, Any]) -> list[list[float]]:
        """Return the starts that are kept of the queue.

        Each limit of a queue notes all its starts. One that is new, or that only another release
        had meanwhile, takes those of the longest time, and from their end on those of the others.
        """
        if self._name in state and self._name not in state.get(RATE_LIMITS_BEFORE, ()):
            return state[self._name]  # type: ignore[no-any-return]  # as it was written
        starts: list[list[float]] = []
        noted = [kept for name, kept in state.items() if name.startswith(RATE_LIMIT) and kept]
        for kept in sorted(noted, key=lambda kept: kept[0][0]):
            starts += [start for start in kept if not starts or start[0] > starts[-1][0]]
        return starts


RATE_LIMIT = "RateLimit("
"""How the names begin under which the starts of a queue are kept."""


RATE_LIMITS = "RateLimits"
"""Under this name the state of a queue has the names of its own rate limits."""

RATE_LIMITS_BEFORE = "RateLimits before"
"""Under this one the names of those that it had before, as long as their starts count."""


def carried_over(
    state: Mapping[str, Any], throttlers: Sequence[Throttler], now: datetime
) -> dict[str, Any]:
    """Return the state of a queue with the starts of its rate limits as they are now.

    Those of limits that it had before are handed on, and kept for as long as they count: another
    release may still have such a limit, or it may come back. Those of limits inside of throttlers
    of the project stay.
    """
    limits = {limit._name: limit for limit in throttlers if isinstance(limit, RateLimit)}
    if not limits and RATE_LIMITS not in state:
        return {**state}
    known = {*state.get(RATE_LIMITS, ()), *state.get(RATE_LIMITS_BEFORE, ())}
    before = sorted(name for name in known - limits.keys() if _still_counts(state, name, now))
    dropped = {RATE_LIMITS_BEFORE, *known}.difference(before)
    others = {name: kept for name, kept in state.items() if name not in dropped}
    starts = {name: limit._kept(state) for name, limit in limits.items()}
    names = {RATE_LIMITS: [*limits], **({RATE_LIMITS_BEFORE: before} if before else {})}
    return {**others, **starts, **names}


def _still_counts(state: Mapping[str, Any], name: str, now: datetime) -> bool:
    """Return whether a limit that the queue had before would still hold a job for a start."""
    kept, per = state.get(name) or [], float(name.removesuffix(")").rpartition(", ")[2])
    return bool(kept) and kept[-1][0] + per > now.timestamp()


def may_query(throttlers: Sequence[Throttler]) -> bool:
    """Return whether code of the project decides, which may query the database."""
    return any(type(throttler) not in (ShareLimit, KeyLimit, RateLimit) for throttler in throttlers)


def keys_read(throttlers: Sequence[Throttler]) -> list[str] | None:
    """Return the keys of the data of running jobs that throttlers read; None if it may be any.

    For keys that are no names the databases have rules of their own.
    """
    if may_query(throttlers):
        return None
    keys = {limit.key for limit in throttlers if isinstance(limit, ShareLimit | KeyLimit)}
    return sorted(keys) if all(key.isascii() and key.isidentifier() for key in keys) else None


def _is_positive(*numbers: object) -> bool:
    return all(
        isinstance(number, int | float | Decimal)
        and not isinstance(number, bool)
        and Decimal(number).is_finite()
        and number > 0
        for number in numbers
    )


def _plain(number: Decimal) -> str:
    return f"{number.normalize():f}"


def _value(job: RunningJob, key: str) -> Any:
    return job.job_data.get(key) if isinstance(job.job_data, dict) else None


def _loads(running: Sequence[RunningJob], group_of: Any) -> dict[str, Decimal]:
    loads: dict[str, Decimal] = defaultdict(Decimal)
    for job in running:
        loads[group_of(job)] += job.throttle_factor
    return loads
