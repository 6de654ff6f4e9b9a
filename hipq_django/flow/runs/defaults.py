"""Deletes messages that were to be defaults until newer ones of their ports came.

A run deletes those of its own ports. Those of nodes that do not run, and of out-ports, would pile
up. They are not deleted where the newer ones are written: the rows would stay locked for as long as
that transaction is open, and the end of a run would wait for it.
"""

from __future__ import annotations

from itertools import pairwise

from hipq_django.conf.instances import InstanceSettings
from hipq_django.database.transactions import worker_transaction
from hipq_django.flow.statements import DefaultPlace, delete_messages, next_defaults

PAGE_SIZE = 5_000
MOST_PAGES = 4
"""How much one sweep looks at: what is left comes next, so a worker is not held up for long."""

FIRST = DefaultPlace(0, 0)


class SweepOfDefaults:
    """Goes through the messages that are to be defaults, page by page, for those that are replaced.

    What is locked is left to the next round.
    """

    def __init__(self) -> None:
        self._after: dict[str, DefaultPlace] = {}

    def run(self, config: InstanceSettings) -> int:
        """Look at the next pages; return how many messages were deleted."""
        using, moved = config.database, 0
        for _ in range(MOST_PAGES):
            page = next_defaults(self._after.get(using, FIRST), PAGE_SIZE, using)
            old = [one.id for one, newer in pairwise(page) if one.port == newer.port]
            if old:
                with worker_transaction(using, is_durable=False):
                    delete_messages(old, using)
            moved += len(old)
            # The last one of a page may be the newest of its port, or not: it is looked at again.
            self._after[using] = page[-2] if len(page) == PAGE_SIZE else FIRST
            if not old or self._after[using] == FIRST:
                break
        return moved
