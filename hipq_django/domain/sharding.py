"""Which shard a key, and an id, belong to. Pure."""

from __future__ import annotations

from hashlib import blake2b

MAX_SHARDS = 64
"""So many shards an instance may have; ids go by steps of as many, so that each names its shard."""

_MASK = (1 << 64) - 1


def number_of_key(key: str, count: int) -> int:
    """Return which of `count` shards a shard key belongs to.

    Of all keys only a part of 1/n moves when the n-th shard is added, and only to that one. Source:
    Lamping and Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm".
    """
    state = int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "big")
    number, following = 0, 0
    while following < count:
        number = following
        state = (state * 2862933555777941757 + 1) & _MASK
        following = int((number + 1) * ((1 << 31) / ((state >> 33) + 1)))
    return number


def number_of_id(row_id: int, first_id: int) -> int:
    """Return which shard a row with this id is in; ids up to `first_id` are from before shards."""
    return row_id % MAX_SHARDS if row_id > first_id else 0


def first_id_of_shard(number: int, first_id: int) -> int:
    """Return the lowest id above `first_id` that names this shard."""
    return first_id + 1 + (number - first_id - 1) % MAX_SHARDS
