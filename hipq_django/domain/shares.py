"""How the shards of a queue divide its limit, and how shares move between them. Pure.

Each shard has a *share* of the limit and claims under it alone, so no claim asks another database.
A shard whose first due job does not fit *pulls*: with one peer after another it makes three visits,
each of which is one transaction in one database.

1. At home it finds out what it needs (`demanded`).
2. At the peer it gets what is idle there, and what the peer has above its base (`granted`). What
   the peer's running jobs still use is *owed*: the peer starts nothing with it, and gives it at a
   later visit.
3. At home it takes what it was given (`taken`).

Between the second visit and the third what was given is in no share. Two counters that only grow,
`sent` at the one shard and `received` at the other, tell how much that is. So the next pull between
the two takes it, in either direction, and a pull that comes late finds nothing to take twice.

The `total` of a shard (share + owed + sent - received) is changed by no pull. The sum of all is the
limit, and no shard runs more than share + owed: together they never run more than the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

ZERO = Decimal(0)

LAPSE = timedelta(seconds=3)
"""After this time without a visit of its taker, what is owed belongs to the share again."""

DUE_JOBS = 100
"""Of so many due jobs the factors are added up."""


class FirstDue(NamedTuple):
    """The first due job of a shard; of two the older one is the lesser."""

    time: datetime
    id: int
    factor: Decimal


@dataclass(frozen=True, slots=True)
class Holding:
    """What a shard has of a queue's limit, and what the queue has to do there."""

    number: int
    """Of the shard."""
    count: int
    """Of all shards."""
    limit: Decimal
    """Of all shards together; below 1 there is none."""
    share: Decimal
    owed: Decimal = ZERO
    owed_to: int | None = None
    owed_time: datetime | None = None
    """When its taker was last here and left a part of it."""
    sent: Mapping[int, Decimal] = field(default_factory=dict)
    """All that was ever sent to each peer."""
    received: Mapping[int, Decimal] = field(default_factory=dict)
    """All that was ever taken of what each peer has sent."""
    running: Decimal = ZERO
    """The sum of the factors of the running jobs."""
    due: Decimal = ZERO
    """The sum of the factors of the first due jobs."""
    first: FirstDue | None = None

    @property
    def total(self) -> Decimal:
        """What counts for this shard; the sum over all shards is the limit."""
        return self.share + self.owed + sum(self.sent.values()) - sum(self.received.values())

    @property
    def base(self) -> Decimal:
        """What it may call back while all shards have enough to do."""
        return base(self.limit, self.number, self.count)

    @property
    def level(self) -> Decimal:
        """Up to which share it calls back: its base, or what its first due job needs."""
        return max(self.base, min(self.first.factor, self.limit)) if self.first else self.base

    @property
    def heavy(self) -> FirstDue | None:
        """The first due job if it needs more than the base."""
        return self.first if self.level > self.base else None

    @property
    def idle(self) -> Decimal:
        """What its running and due jobs leave of its share."""
        return max(self.share - self.running - self.due, ZERO)


def base(limit: Decimal, number: int, count: int) -> Decimal:
    """Return an equal part of the limit; the first shards have one more, shard 0 the decimals."""
    if limit < 1:
        return ZERO
    whole = int(limit)
    decimals = ZERO if number else limit - whole
    return whole // count + (number < whole % count) + decimals


class Demand(NamedTuple):
    """What a hungry shard asks of a peer."""

    taker: int
    need: Decimal
    """For all its running and due jobs: this much of what is idle."""
    lacks: Decimal
    """Up to its level: this much may be called back."""
    heavy: FirstDue | None
    sent: Decimal
    """All that it has ever sent to the peer."""


class Grant(NamedTuple):
    """What a peer says to a demand."""

    sent: Decimal
    """All that it has ever sent to the taker."""
    owed: Decimal
    """What it will give to the taker when jobs have ended."""


def demanded(
    own: Holding, now: datetime, peer: int, promised: Decimal
) -> tuple[Holding, Demand | None]:
    """Return what a shard needs of a peer, when others have promised it so much already."""
    own = lapsed(own, now)
    need = own.running + own.due - own.share
    if need <= 0 or own.limit < 1:
        return own, None
    # It calls back no more than it can use: until it has lapsed that would be of use to nobody.
    lacks = max(min(own.level - own.share, need) - promised, ZERO)
    return own, Demand(own.number, need, lacks, own.heavy, own.sent.get(peer, ZERO))


def granted(own: Holding, now: datetime, demand: Demand) -> tuple[Holding, Grant]:
    """Return what a shard gives to another, now and when more of its jobs have ended.

    It first takes what the other has sent and it had not taken. It keeps what its running jobs use.
    """
    own, _ = taken(lapsed(own, now), now, demand.taker, demand.sent)
    mine = own.owed if own.owed_to == demand.taker else ZERO
    recall = max(min(own.share - _floor(own, demand), demand.lacks - mine), ZERO)
    room = own.share + mine - max(own.running - (own.owed - mine), ZERO)
    give = max(min(demand.need, mine + max(own.idle, recall), room), ZERO)
    part = min(mine, give)  # of what is owed
    is_free = own.owed == mine  # it owes to one taker at a time
    promise = max(recall - (give - part), ZERO) if is_free else ZERO
    sent = own.sent.get(demand.taker, ZERO) + give
    own = replace(
        own,
        share=own.share - (give - part) - promise,
        owed=own.owed - part + promise,
        sent={**own.sent, demand.taker: sent},
    )
    if is_free:
        is_left = own.owed > 0
        own = replace(
            own, owed_to=demand.taker if is_left else None, owed_time=now if is_left else None
        )
    return own, Grant(sent, own.owed if is_free else ZERO)


def _floor(own: Holding, demand: Demand) -> Decimal:
    """Return the share that a shard keeps: of two heavy jobs the older one goes first."""
    if demand.heavy and (own.heavy is None or demand.heavy <= own.heavy):
        return ZERO
    return own.share if own.heavy else own.base


def taken(own: Holding, now: datetime, peer: int, sent: Decimal) -> tuple[Holding, Decimal]:
    """Return a shard that has taken all that a peer has ever `sent` to it, and how much is new.

    Nothing is new if another pull has taken it meanwhile, however old the number is.
    """
    del now
    new = max(sent - own.received.get(peer, ZERO), ZERO)
    if not new:
        return own, ZERO
    return replace(own, share=own.share + new, received={**own.received, peer: sent}), new


def lapsed(own: Holding, now: datetime) -> Holding:
    """Return a shard that has taken back what its taker has not come for."""
    if own.owed_time is None or now - own.owed_time <= LAPSE:
        return own
    return replace(own, share=own.share + own.owed, owed=ZERO, owed_to=None, owed_time=None)


# Visits of several shards in turn

Change = Callable[[Holding, datetime], tuple[Holding, Any]]
"""What a visit does: from the holding and the shard's time to the new holding and a result."""


class Visit(NamedTuple):
    """One transaction: the shard's queue is locked, read, changed and written."""

    shard: int
    change: Change


def pull(number: int, peers: Iterable[int]) -> Generator[Visit, Any, Decimal]:
    """Yield the visits of a pull for a shard, and return how much it has got.

    Each visit is answered with its result, or with None where the shard does not answer.
    """
    got = promised = ZERO
    for peer in peers:
        demand = yield Visit(number, partial(demanded, peer=peer, promised=promised))
        if demand is None:
            break
        grant = yield Visit(peer, partial(granted, demand=demand))
        if grant is not None:
            new = yield Visit(number, partial(taken, peer=peer, sent=grant.sent))
            got += new or ZERO
            promised += grant.owed
    return got


def change_limit(count: int, limit: Decimal | None = None) -> Generator[Visit, Any, Decimal]:
    """Yield the visits that give all shards a limit, and make the sum of their totals that limit.

    Return it. Without a limit the one of shard 0 stays and only the sum is repaired. Pulls may go
    on meanwhile. What was cut off is done by doing all of it again.

    Shares are cut before the limit is lowered, and grow after it was raised: a shard whose share is
    the whole limit may start a job that is heavier, because then the others have none of it.
    """
    seen = yield from _each(count, _look)  # before anything changes, all have to answer
    limit = seen[0].limit if limit is None else limit
    while (excess := (yield from _excess(count, limit, seen))) > 0:
        yield from _cut(count, excess)
        seen = yield from _each(count, _look)
    yield from _each(count, partial(_limited, limit=limit))
    if excess < 0:
        yield Visit(0, partial(_grown, by=-excess))
    return limit


def _excess(count: int, limit: Decimal, seen: Sequence[Holding]) -> Generator[Visit, Any, Decimal]:
    totals = yield from _each(count, partial(_settled, seen=seen))
    return sum(totals, ZERO) - (limit if limit >= 1 else ZERO)


def _cut(count: int, excess: Decimal) -> Generator[Visit, Any, None]:
    """Cut so much from all shards, if no pull is on its way with some of it."""
    for cut in _CUTS:
        for number in range(count):
            if excess > 0:
                excess -= yield Visit(number, partial(cut, excess=excess))


def _each(count: int, change: Change) -> Generator[Visit, Any, list[Any]]:
    results = []
    for number in range(count):
        result = yield Visit(number, change)
        results.append(result)
    return results


def _look(own: Holding, now: datetime) -> tuple[Holding, Holding]:
    del now
    return own, own


def _settled(own: Holding, now: datetime, seen: Sequence[Holding]) -> tuple[Holding, Decimal]:
    """Take what was sent; what a peer has received was sent, though a failover has lost that.

    The counters never become smaller: a pull that sleeps would take all of it again.
    """
    sent = dict(own.sent)
    for peer in seen:
        own, _ = taken(own, now, peer.number, peer.sent.get(own.number, ZERO))
        received = peer.received.get(own.number, ZERO)
        if received > sent.get(peer.number, ZERO):
            sent[peer.number] = received
    own = replace(own, sent=sent)
    return own, own.total


def _cut_free(own: Holding, now: datetime, excess: Decimal) -> tuple[Holding, Decimal]:
    del now
    cut = min(excess, max(own.share - own.running, ZERO))
    return replace(own, share=own.share - cut), cut


def _cut_share(own: Holding, now: datetime, excess: Decimal) -> tuple[Holding, Decimal]:
    del now
    cut = min(excess, own.share)
    return replace(own, share=own.share - cut), cut


def _cut_owed(own: Holding, now: datetime, excess: Decimal) -> tuple[Holding, Decimal]:
    del now
    cut = min(excess, own.owed)
    return replace(own, owed=own.owed - cut), cut


_CUTS = (_cut_free, _cut_share, _cut_owed)
"""What goes first when shares are too much: what nobody uses."""


def _limited(own: Holding, now: datetime, limit: Decimal) -> tuple[Holding, None]:
    del now
    return replace(own, limit=limit), None


def _grown(own: Holding, now: datetime, by: Decimal) -> tuple[Holding, None]:
    del now
    return replace(own, share=own.share + by), None
