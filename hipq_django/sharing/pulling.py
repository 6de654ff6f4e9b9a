"""The pull: a shard whose jobs do not fit gets shares of the others."""

from __future__ import annotations

import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from hipq_django.conf.instances import InstanceSettings
from hipq_django.database.transactions import worker_transaction
from hipq_django.domain import shares
from hipq_django.domain.shares import Visit
from hipq_django.sharing.visits import ShardedQueue, SilentShardError, make_all


def pull(config: InstanceSettings, number: int, queue: str, aliases: Sequence[str]) -> Decimal:
    """Let a shard get what it needs of a queue's limit from the others; return how much it got.

    `aliases` are those of the shards of the map, by their numbers. Call it outside transactions and
    in a thread that nothing waits for: a shard that does not answer costs two seconds. What this
    pull does not finish, because a shard falls silent or the process ends, the next one does.
    """
    sharded = ShardedQueue(config, queue, aliases)

    def visit(visit: Visit) -> Any:
        try:
            return sharded.visit(visit, worker_transaction)
        except SilentShardError:
            return None

    peers = [peer for peer in range(len(aliases)) if peer != number]
    random.shuffle(peers)
    return make_all(shares.pull(number, peers), visit)
