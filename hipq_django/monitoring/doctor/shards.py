"""What is wrong with the shards of an instance, seen together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal

from hipq_django.conf.instances import InstanceSettings
from hipq_django.domain.shares import ZERO
from hipq_django.models import Transfer
from hipq_django.monitoring.doctor.findings import Finding, problem, warning
from hipq_django.monitoring.shards import ShardsState, look_at_shards
from hipq_django.sharding.map import Shards, map_of


def unreachable(alias: str) -> Finding:
    """Return the finding about a shard that does not answer."""
    return problem(
        "shard_unreachable",
        f"database {alias}",
        f"{alias} does not answer.",
        "Its jobs do not run, and it keeps what it has of each limit; the other shards go on.",
        "Look after its server: its workers go on by themselves once it is back.",
    )


def of_all(config: InstanceSettings) -> Iterator[Finding]:
    """Yield what is wrong with the map, and with what the shards have of each limit together."""
    known = map_of(config)
    yield from _of_map(config, known)
    state = look_at_shards(config)
    if known.is_stored and not any(each.problem for each in state.shards):
        yield from _of_shares(config, state)


def _of_map(config: InstanceSettings, known: Shards) -> Iterator[Finding]:
    where = f"instance {config.name}"
    if len(config.shards) > len(known.shards):
        more = ", ".join(config.shards[len(known.shards) :])
        yield problem(
            "shard_map",
            where,
            f"SHARDS names {more}, where no jobs go yet.",
            "The shards in use are those of the map, which is stored in them.",
            "Run manage.py hipq_shards add.",
        )
    if known.count_before < len(known.shards):
        yield warning(
            "shard_map",
            where,
            f"it has grown from {known.count_before} to {len(known.shards)} shards, and is not "
            "settled.",
            "Keys that have moved are looked up in two shards.",
            "Run manage.py hipq_shards settle.",
        )


def _of_shares(config: InstanceSettings, state: ShardsState) -> Iterator[Finding]:
    limits = {queue.name: queue.throttle_limit for each in state.shards for queue in each.queues}
    unsent = _received_unsent(config, state)
    for name, total in state.sums.items():
        found = (total or ZERO) + unsent[name]
        limit = limits[name] if limits[name] >= 1 else ZERO
        if found != limit:
            yield problem(
                "share_sum",
                f"queue {name}",
                f"The shares of {name!r} are {_plain(found)}, its limit is {_plain(limit)}.",
                "A server has lost transactions, as in a failover: more may run than the limit "
                "allows, or less.",
                f"Run manage.py hipq_shards limit {name}.",
            )


def _received_unsent(config: InstanceSettings, state: ShardsState) -> dict[str, Decimal]:
    """Return by queue how much was received of which its sender knows nothing.

    What was received is read first: meanwhile more may be sent.
    """
    found: dict[str, Decimal] = defaultdict(Decimal)
    received = dict(_counters(config, state, "received"))
    sent = dict(_counters(config, state, "sent"))
    for (name, receiver, sender), number in received.items():
        found[name] += max(number - sent.get((name, sender, receiver), ZERO), ZERO)
    return found


def _counters(
    config: InstanceSettings, state: ShardsState, name: str
) -> Iterator[tuple[tuple[str, int, int], Decimal]]:
    """Yield one of the counters: queue, shard and peer, and the number."""
    for each in state.shards:
        rows = Transfer.objects.using(each.shard.alias).filter(queue__instance=config.name)
        for queue, peer, number in rows.values_list("queue__name", "peer", name):
            yield (queue, each.shard.number, peer), number


def _plain(number: Decimal) -> str:
    return f"{number.normalize():f}"
