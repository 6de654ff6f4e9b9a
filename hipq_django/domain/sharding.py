"""Which shard a key, and an id, belong to. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

from hipq_django.domain.redaction import quoted
from hipq_django.domain.states import NONE
from hipq_django.exceptions import InvalidJobError

MAX_SHARDS = 64
"""So many shards an instance may have; ids go by steps of as many, so that each names its shard."""

MAX_SHARD_KEY_CHARS = 255

_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Shard:
    """One of the databases over which an instance is spread: its number, its alias in DATABASES."""

    number: int
    alias: str


def checked_shard_key(where: str, key: object) -> str:
    """Return a shard key; raise `InvalidJobError`, which begins with `where`, for a wrong one."""
    if isinstance(key, str) and 0 < len(key) <= MAX_SHARD_KEY_CHARS and _can_be_stored(key):
        return str.__str__(key)
    raise InvalidJobError(
        f"{where}: shard_key {quoted(key)}: give text of 1 to {MAX_SHARD_KEY_CHARS} characters."
    )


def _can_be_stored(text: str) -> bool:
    """Return whether it is text for the database: half a character, or NUL, is none."""
    try:
        return "\0" not in text and bool(text.encode())
    except UnicodeEncodeError:
        return False


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


def has_moved(key: str, number: int, count_before: int, count: int) -> bool:
    """Return whether a key that was in this shard before others were added is in another now."""
    return number_of_key(key, count_before) == number != number_of_key(key, count)


def key_of_row(
    shard_key: str | None, job_key: str, waiting_key: str | None, kept_key: str | None
) -> str:
    """Return the key that says where a job is, by its columns; empty if it has none."""
    return shard_key or (job_key if job_key != NONE else waiting_key or kept_key or "")


def first_id_of_shard(number: int, first_id: int) -> int:
    """Return the lowest id above `first_id` that names this shard."""
    return first_id + 1 + (number - first_id - 1) % MAX_SHARDS
