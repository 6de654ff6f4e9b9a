"""A model of shards that share a limit, run by the functions that production runs.

Each visit of a pull is one atomic step. Between any two steps pulls may sleep, crash or lose an
answer, others may pull the same shards, jobs come, start and end, and the limit may change. After
each step the limit and the sum of the shares are checked.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from decimal import Decimal
from heapq import heappop, heappush, nsmallest
from itertools import count
from typing import Any

import pytest

from hipq_django.domain import shares
from hipq_django.domain.shares import ZERO, FirstDue, Holding, Visit
from hipq_django.domain.throttling import fits
from tests.noon import MONDAY_NOON

STEPS = 10_000


@dataclass
class Shard:
    """A shard's queue; what jobs start and end here needs no other shard."""

    holding: Holding
    running: list[Decimal] = field(default_factory=list)
    due: list[FirstDue] = field(default_factory=list)
    allowed: Decimal = ZERO
    """What may run above the share: one job alone, and what ran when the limit was lowered."""

    @property
    def load(self) -> Decimal:
        return sum(self.running, ZERO)

    def look(self) -> Holding:
        due = nsmallest(shares.DUE_JOBS, self.due)
        sum_of_due = sum((job.factor for job in due), ZERO)
        first = due[0] if due else None
        return replace(self.holding, running=self.load, due=sum_of_due, first=first)

    def claim(self) -> None:
        own = self.holding
        while self.due and fits(self.due[0].factor, self.load, own.limit, own.share):
            self.running.append(heappop(self.due).factor)
            if self.running[-1] > own.limit:
                self.allowed = self.load - own.share

    @property
    def is_hungry(self) -> bool:
        own = self.holding
        return bool(self.due) and not fits(self.due[0].factor, self.load, own.limit, own.share)

    @property
    def above(self) -> Decimal:
        return max(self.load - self.holding.share - self.holding.owed, ZERO)


@dataclass
class Process:
    """A thread that makes visits: a pull, or a change of the limit."""

    visits: Generator[Visit, Any, Any]
    visit: Visit
    seen: Holding
    """The shard as it was when the visit was planned; only a wrong protocol uses that."""
    sleeps_until: Any = None


class World:
    """Some shards, and everything that can go wrong between them."""

    reads_before_locking = False

    def __init__(self, number: int, limit: int | str, *, seed: int = 0) -> None:
        self.random = random.Random(seed)
        self.now = MONDAY_NOON
        self.limit = Decimal(limit)
        self.is_changing = False
        self.ids = count(1)
        shares = [self.limit, *[ZERO] * (number - 1)]
        self.shards = [Shard(Holding(i, number, self.limit, s)) for i, s in enumerate(shares)]
        self.pulls: list[Process] = []
        self.change: Process | None = None

    def enqueue(self, shard: int, *factors: float | Decimal) -> None:
        for factor in factors:
            job = FirstDue(self.now, next(self.ids), Decimal(str(factor)))
            heappush(self.shards[shard].due, job)

    def end(self, shard: int) -> None:
        jobs = self.shards[shard]
        if jobs.running:
            jobs.running.pop(self.random.randrange(len(jobs.running)))
            jobs.allowed = min(jobs.allowed, jobs.above)

    # Processes

    def start_pull(self, number: int) -> None:
        if self.shards[number].is_hungry:
            peers = [i for i in range(len(self.shards)) if i != number]
            self.random.shuffle(peers)
            self.pulls.append(self.process(shares.pull(number, peers)))

    def process(self, visits: Generator[Visit, Any, Any]) -> Process:
        visit = next(visits)
        return Process(visits, visit, self.shards[visit.shard].look())

    def advance(self, process: Process, *, answers: bool = True) -> bool:
        """Make the next visit; return whether there are more. Its answer may be lost."""
        shard, change = process.visit
        at = self.shards[shard]
        seen = process.seen if self.reads_before_locking else at.look()
        at.holding, result = change(seen, self.now)
        if process is self.change:
            at.allowed = max(at.allowed, at.above)
        self.check()
        try:
            process.visit = process.visits.send(result if answers else None)
        except StopIteration:
            return False
        process.seen = self.shards[process.visit.shard].look()
        return True

    def pull(self, number: int) -> None:
        """Make a pull from its first step to its last."""
        self.start_pull(number)
        while self.pulls:
            if not self.advance(self.pulls[0]):
                del self.pulls[0]

    def change_limit(self, limit: Decimal | None = None) -> None:
        """Change the limit, from the first step to the last."""
        self.begin_change(limit)
        while self.change:
            self.advance_change()

    def begin_change(self, limit: Decimal | None = None) -> None:
        self.change = self.process(shares.change_limit(len(self.shards), limit))
        self.is_changing = True
        self.limit = self.limit if limit is None else limit

    def advance_change(self) -> None:
        if self.change and not self.advance(self.change):
            self.change = None
            self.is_changing = False
            self.check()

    def check(self) -> None:
        """Assert both invariants, and what follows from them."""
        total = sum((shard.holding.total for shard in self.shards), ZERO)
        assert total <= min(shard.holding.limit for shard in self.shards)
        assert total == self.limit or self.is_changing
        for shard in self.shards:
            own = shard.holding
            assert min(own.share, own.owed) >= 0
            assert shard.load <= own.share + own.owed + shard.allowed
        allowed = sum((shard.allowed for shard in self.shards), ZERO)
        assert sum((shard.load for shard in self.shards), ZERO) <= total + allowed


class Chaos(World):
    """A world in which anything may happen at each step."""

    def __init__(
        self, number: int, limit: int | str, factors: Sequence[Any], limits: Sequence[int] = ()
    ) -> None:
        super().__init__(number, limit, seed=1)
        self.factors = [Decimal(str(factor)) for factor in factors]
        self.limits = [Decimal(limit) for limit in limits]

    def run(self, steps: int = STEPS) -> None:
        actions: dict[Callable[[], None], int] = {
            self.go_on: 60,
            self.pull_somewhere: 12,
            self.job_comes: 10,
            self.jobs_start: 10,
            self.job_ends: 16,
            self.pull_crashes: 1,
            self.pull_sleeps: 1,
            self.limit_changes: 6 if self.limits else 0,
        }
        for action in self.random.choices([*actions], [*actions.values()], k=steps):
            self.now += timedelta(milliseconds=self.random.randrange(60))
            action()
            self.check()

    def drain(self, steps: int = 2 * STEPS) -> None:
        """No more jobs come, and nothing fails: all jobs run."""
        self.change_limit(self.limit)
        actions = [self.go_on, self.go_on, self.pull_somewhere, self.jobs_start, self.job_ends]
        while any(shard.due or shard.running for shard in self.shards):
            steps -= 1
            assert steps, [shard.look() for shard in self.shards]
            self.now += timedelta(milliseconds=self.random.randrange(60))
            self.random.choice(actions)()
            self.check()

    def somewhere(self) -> int:
        return self.random.randrange(len(self.shards))

    def job_comes(self) -> None:
        shard = self.somewhere()
        if len(self.shards[shard].due) < 20:
            self.enqueue(shard, self.random.choice(self.factors))

    def jobs_start(self) -> None:
        self.shards[self.somewhere()].claim()

    def job_ends(self) -> None:
        self.end(self.somewhere())

    def pull_somewhere(self) -> None:
        if len(self.pulls) < 12:
            self.start_pull(self.somewhere())

    def go_on(self) -> None:
        awake = [p for p in self.pulls if p.sleeps_until is None or p.sleeps_until < self.now]
        if awake:
            process = self.random.choice(awake)
            if not self.advance(process, answers=self.random.random() > 0.02):
                self.pulls.remove(process)

    def pull_sleeps(self) -> None:
        if self.pulls:
            seconds = self.random.choice([1, 5, 60])
            self.random.choice(self.pulls).sleeps_until = self.now + timedelta(seconds=seconds)

    def pull_crashes(self) -> None:
        if self.pulls:
            self.pulls.remove(self.random.choice(self.pulls))

    def limit_changes(self) -> None:
        """Begin a change, or go on with it, or cut it off; then it, or another, is begun again."""
        if self.change and self.random.random() < 0.97:
            self.advance_change()
        elif self.change or self.random.random() < 0.03:
            self.begin_change(self.random.choice(self.limits))


LIGHT = [0.001, 0.5, 1, 1, 1, 2]
CASES: dict[str, tuple[Any, ...]] = {
    "two shards": (2, 7, LIGHT),
    "five shards, some jobs of the whole limit": (5, "40.5", [*LIGHT * 9, 25, "40.5"]),
    "more shards than the limit, and jobs above it": (4, 3, [0.5, 1, 1, 2, 3, 5]),
    "a limit that changes": (4, 40, [*LIGHT * 9, 20, 40, 60], [0, 3, 20, 40, 60]),
}


@pytest.mark.parametrize("case", CASES)
def test_whatever_fails_between_its_steps_shards_keep_the_limit_and_all_jobs_run(
    case: str,
) -> None:
    world = Chaos(*CASES[case])

    world.run()
    world.drain()
    world.change_limit()

    assert sum(shard.holding.share + shard.holding.owed for shard in world.shards) == world.limit


def saturated(number: int, limit: int, starved: int, *factors: float) -> World:
    """Return a world in which the other shards use the whole limit, and one has such jobs."""
    world = World(number, limit)
    busy = [i for i in range(number) if i != starved]
    world.shards[0].holding = replace(world.shards[0].holding, share=ZERO)
    for place, i in enumerate(busy):
        share = shares.base(world.limit, place, len(busy))
        world.shards[i].holding = replace(world.shards[i].holding, share=share)
        world.enqueue(i, *[1] * 500)
        world.shards[i].claim()
    world.enqueue(starved, *factors)
    return world


def seconds(world: World, number: int) -> None:
    """Let seconds go by: each job takes some, and each hungry shard pulls once."""
    for _ in range(number):
        world.now += timedelta(seconds=1)
        for i in world.random.sample(range(len(world.shards)), len(world.shards)):
            for _ in range((len(world.shards[i].running) + 1) // 2):
                world.end(i)
            world.pull(i)
            world.shards[i].claim()
            world.check()


def test_beside_saturated_shards_a_starved_one_gets_its_base() -> None:
    world = saturated(4, 40, 3, *[1] * 100)

    seconds(world, 8)

    assert [shard.load for shard in world.shards] == [10, 10, 10, 10]


def test_a_shard_calls_back_no_more_than_it_needs() -> None:
    world = saturated(4, 40, 3, 1)

    world.pull(3)

    assert sum(shard.holding.owed for shard in world.shards) == 1


@pytest.mark.parametrize("factor", [40, 45])
def test_beside_saturated_shards_a_job_of_the_whole_limit_gets_its_room(factor: int) -> None:
    world = saturated(4, 40, 3, factor)

    seconds(world, 8)

    assert not world.shards[3].due


def test_of_two_jobs_that_each_need_the_whole_limit_the_older_one_goes_first() -> None:
    world = saturated(4, 40, 3, 40)
    world.shards[2].due = []
    world.enqueue(2, 40)

    started: list[int] = []
    for _ in range(12):
        seconds(world, 1)
        started += [i for i in (2, 3) if i not in started and not world.shards[i].due]

    assert started == [3, 2]


def test_a_shard_owes_to_one_other_at_a_time() -> None:
    own = Holding(0, 3, Decimal(30), Decimal(10), Decimal(5), 2, MONDAY_NOON, running=Decimal(15))
    demand = shares.Demand(1, Decimal(30), Decimal(10), FirstDue(MONDAY_NOON, 1, Decimal(30)), ZERO)

    after, grant = shares.granted(own, MONDAY_NOON, demand)

    assert [grant.sent, grant.owed] == [0, 0]
    assert [after.owed, after.owed_to] == [5, 2]


def test_the_limit_is_used_though_all_jobs_are_in_one_shard() -> None:
    world = World(4, 40)
    world.enqueue(2, *[1] * 100)

    world.pull(2)
    world.shards[2].claim()

    assert world.shards[2].load == 40


@pytest.mark.parametrize("hungry", [0, 1])
def test_what_is_owed_to_a_shard_that_does_not_come_is_used_by_others(hungry: int) -> None:
    world = saturated(3, 30, 2, *[1] * 100)
    world.pull(2)
    assert world.shards[0].holding.owed_to == world.shards[1].holding.owed_to == 2
    for shard in world.shards:
        shard.due = []
    world.enqueue(hungry, 30)

    seconds(world, 8)

    assert world.shards[hungry].due == []


def test_a_pull_that_was_cut_off_is_finished_by_one_in_the_other_direction() -> None:
    world = World(2, 10)
    world.enqueue(1, 10)
    world.start_pull(1)
    world.advance(world.pulls[0])
    world.advance(world.pulls.pop())  # shard 0 has given all
    world.enqueue(0, *[1] * 10)
    world.shards[1].due = []

    world.pull(0)
    world.shards[0].claim()

    assert world.shards[0].load == 10


# What a shard has, runs and is to run; what the other needs and lacks; what it gives and owes.
_GRANTS: dict[str, tuple[Any, ...]] = {
    "what is idle": ((20, 5, 5), (30, 0, None), [10, 0]),
    "no more than is needed": ((20, 5, 5), (3, 0, None), [3, 0]),
    "what it has above its base, when its jobs have ended": ((15, 12, 99), (99, 9, None), [3, 2]),
    "no more than the other lacks": ((20, 19, 99), (99, 4, None), [1, 3]),
    "nothing of its base": ((10, 5, 99), (99, 5, None), [0, 0]),
    "its base for a heavy job": ((10, 5, 99), (99, 10, 0), [5, 5]),
    "nothing for a heavy job if its own is older": ((10, 5, -20), (99, 10, 1), [0, 0]),
    "all for a heavy job if its own is younger": ((10, 5, -20), (99, 10, 0), [5, 5]),
    "nothing for light jobs while its own is heavy": ((20, 5, -20), (99, 10, None), [0, 0]),
}


@pytest.mark.parametrize("case", _GRANTS)
def test_a_shard_gives(case: str) -> None:
    (share, running, due), (need, lacks, age), expected = _GRANTS[case]
    own = Holding(
        0, 2, Decimal(20), Decimal(share), running=Decimal(running), due=abs(Decimal(due))
    )
    # The first due job has the factor 1, or all if the number is negative.
    own = replace(own, first=FirstDue(MONDAY_NOON, 1, Decimal(max(1, -due))))
    heavy = None if age is None else FirstDue(MONDAY_NOON, 2 * age, Decimal(20))
    demand = shares.Demand(1, Decimal(need), Decimal(lacks), heavy, ZERO)

    own, grant = shares.granted(own, MONDAY_NOON, demand)

    assert [grant.sent, grant.owed] == expected
    assert own.share + own.owed == share - grant.sent


def test_bases_are_whole_and_add_up_to_the_limit() -> None:
    bases = [shares.base(Decimal("10.5"), number, 4) for number in range(4)]

    assert bases == [Decimal("3.5"), 3, 2, 2]
    assert shares.base(Decimal("0.9"), 0, 4) == 0


class Repaired(World):
    """A world whose sum is wrong at first."""

    def check(self) -> None:
        """Check nothing."""


def test_after_a_failover_that_lost_transactions_the_sum_is_repaired() -> None:
    world = Repaired(3, 30)
    lost = world.shards[0].holding
    world.enqueue(2, *[1] * 20)
    world.pull(2)
    world.shards[0].holding = lost  # it does not know that it has sent anything

    world.change_limit()

    assert sum(shard.holding.share for shard in world.shards) == 30


def _received_is_forgotten(
    own: Holding, now: Any, peer: int, sent: Decimal
) -> tuple[Holding, Decimal]:
    own, new = _taken(own, now, peer, sent)
    return replace(own, received={**own.received, peer: ZERO}), new


_taken = shares.taken


def test_the_model_finds_a_share_that_is_taken_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "taken", _received_is_forgotten)

    with pytest.raises(AssertionError):
        Chaos(*CASES["two shards"]).run()


def test_the_model_finds_what_is_read_before_it_is_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "reads_before_locking", True)

    with pytest.raises(AssertionError):
        Chaos(*CASES["two shards"]).run()
