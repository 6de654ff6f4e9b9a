"""The pull: a shard whose jobs do not fit gets shares of the others."""

from __future__ import annotations

import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from hipq_django.conf.instances import InstanceSettings
from hipq_django.database.clock import steady
from hipq_django.database.transactions import worker_transaction
from hipq_django.domain import shares
from hipq_django.domain.shares import Visit
from hipq_django.sharing.visits import ShardedQueue, SilentShardError, make_all

LONG_SECONDS = 1.0
AVOIDED_SECONDS = 10.0
"""For how long a shard is not asked that has let a pull wait for long, and did not answer.

Who waits in each pull comes too late for what the others owe.
"""

_silent: dict[str, float] = {}
"""Since when such shards are avoided by this process, by the steady clock."""


def pull(config: InstanceSettings, number: int, queue: str, aliases: Sequence[str]) -> Decimal:
    """Let a shard get what it needs of a queue's limit from the others; return how much it got.

    `aliases` are those of the shards of the map, by their numbers. Call it outside transactions and
    in a thread that nothing waits for: a shard that does not answer costs two seconds. What this
    pull does not finish, because a shard falls silent or the process ends, the next one does.
    """
    sharded = ShardedQueue(config, queue, aliases)

    def visit(visit: Visit) -> Any:
        began = steady()
        try:
            return sharded.visit(visit, worker_transaction)
        except SilentShardError as error:
            if not error.is_locked and steady() - began > LONG_SECONDS:
                _silent[error.alias] = steady()
            return None

    avoided = {alias for alias, since in _silent.items() if steady() - since < AVOIDED_SECONDS}
    peers = [i for i, alias in enumerate(aliases) if i != number and alias not in avoided]
    random.shuffle(peers)
    return make_all(shares.pull(number, peers), visit)
