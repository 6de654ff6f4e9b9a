"""The shards of an instance in numbers: who has how much of the limits, and whether it adds up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django.db import Error
from django.db.models import F, Sum

from hipq_django.conf.instances import InstanceSettings
from hipq_django.database import clock
from hipq_django.database.answering import answers
from hipq_django.database.errors import in_one_line
from hipq_django.database.transactions import looks_only
from hipq_django.domain.sharding import Shard
from hipq_django.models import Queue, Transfer
from hipq_django.monitoring.counts import COUNT_LIMIT, with_figures
from hipq_django.sharding.map import map_of


@dataclass(frozen=True, slots=True)
class QueueShare:
    """What a shard has of a queue's limit, and what it has to do.

    `running` is the sum of the factors that run, `due` the number of due jobs, up to 10,000.
    """

    name: str
    throttle_limit: Decimal
    share: Decimal | None
    owed: Decimal
    running: Decimal
    due: int
    total: Decimal
    """What counts of the limit here: with what is owed, and what was sent and is not taken yet."""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "name": self.name,
            "throttle_limit": _number(self.throttle_limit),
            "share": _number(self.share),
            "owed": _number(self.owed),
            "running": _number(self.running),
            "due": min(self.due, COUNT_LIMIT),
        }


@dataclass(frozen=True, slots=True)
class ShardState:
    """One shard, and what it says of its queues; `problem` is '' if it answers."""

    shard: Shard
    problem: str
    queues: Sequence[QueueShare] = ()
    is_silent: bool = False
    """Whether that is the problem: it does not answer."""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "number": self.shard.number,
            "alias": self.shard.alias,
            "problem": self.problem or None,
            "queues": [queue.as_dict() for queue in self.queues],
        }


@dataclass(frozen=True, slots=True)
class ShardsState:
    """All shards of an instance."""

    count_before: int
    shards: Sequence[ShardState]

    @property
    def sums(self) -> Mapping[str, Decimal | None]:
        """What the shards have of each limit together; None where one does not answer."""
        found: dict[str, Decimal | None] = {}
        is_whole = not any(state.problem for state in self.shards)
        for state in self.shards:
            for queue in state.queues:
                before = found.get(queue.name) or Decimal(0)
                found[queue.name] = before + queue.total if is_whole else None
        return dict(sorted(found.items()))

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "count": len(self.shards),
            "count_before": self.count_before,
            "shards": [state.as_dict() for state in self.shards],
            "sums": {name: _number(value) for name, value in self.sums.items()},
        }


def look_at_shards(config: InstanceSettings, **queues: Any) -> ShardsState:
    """Return the state of each shard of an instance, one after the other.

    `queues` narrows the queues that are looked at: `name="bank"`.
    """
    known = map_of(config)
    states = [_state(config.on(shard.alias), shard, queues) for shard in known.shards]
    return ShardsState(known.count_before, states)


def _state(config: InstanceSettings, shard: Shard, queues: Mapping[str, Any]) -> ShardState:
    if config.is_sharded and not answers(shard.alias):
        return ShardState(shard, f"{shard.alias} does not answer", is_silent=True)
    try:
        with looks_only(shard.alias):
            return ShardState(shard, "", _queues(config, queues))
    except Error as error:  # an empty database, in the place of one that was lost
        return ShardState(shard, f"{shard.alias}: {in_one_line(error)}")


def _queues(config: InstanceSettings, queues: Mapping[str, Any]) -> list[QueueShare]:
    using = config.database
    rows = Queue.objects.using(using).filter(instance=config.name, **queues).order_by("name")
    counters = Transfer.objects.using(using).values("queue").order_by()
    counted = counters.annotate(on_its_way=Sum(F("sent") - F("received")))
    on_its_way = {row["queue"]: row["on_its_way"] for row in counted}
    return [
        QueueShare(
            name=queue.name,
            throttle_limit=queue.throttle_limit,
            share=queue.share,
            owed=queue.owed,
            running=queue.load or Decimal(0),
            due=queue.due_count,
            total=_own(queue) + queue.owed + on_its_way.get(queue.pk, Decimal(0)),
        )
        for queue in with_figures(rows, clock.now(using))
    ]


def _own(queue: Queue) -> Decimal:
    """Return the share; without one, the whole limit counts."""
    if queue.share is not None:
        return queue.share
    return queue.throttle_limit if queue.is_limited else Decimal(0)


def _number(value: Decimal | None) -> float | None:
    return None if value is None else float(value)
