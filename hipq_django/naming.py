"""How the tables of queues are named: see `TABLE_NAMING_STRATEGY`."""

from __future__ import annotations


def instance_and_queue(instance: str, queue: str) -> str:
    """Return the name of the table of a queue: that of its instance, then its own."""
    return f"{instance}_{queue}"
