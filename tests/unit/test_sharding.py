"""Which shard a key, and an id, belong to."""

from __future__ import annotations

import pytest

from hipq_django.domain.sharding import (
    MAX_SHARDS,
    first_id_of_shard,
    number_of_id,
    number_of_key,
)

COUNTS = (2, 3, 4, 5, 8, 64)
VECTORS = {
    "tenant-1": (1, 2, 2, 2, 6, 25),
    "tenant-2": (1, 1, 3, 3, 3, 23),
    "tenant-3": (1, 2, 2, 2, 2, 25),
    "tenant-7": (0, 0, 0, 4, 4, 38),
    "order-42": (0, 0, 0, 4, 6, 19),
    "order-43": (0, 0, 0, 0, 6, 37),
    "order-1000": (0, 0, 0, 0, 0, 13),
    "a": (0, 0, 0, 0, 6, 11),
    "A": (1, 2, 2, 2, 2, 43),
    "0": (1, 2, 2, 2, 2, 16),
    "10": (0, 0, 0, 4, 4, 39),
    "NONE": (1, 1, 1, 1, 6, 52),
    "nightly": (0, 2, 2, 2, 2, 31),
    "\u00e9": (0, 2, 2, 2, 2, 2),
    "日本": (0, 0, 0, 0, 7, 17),
    "🙂": (1, 1, 3, 4, 4, 60),
    "two words": (1, 2, 2, 2, 6, 44),
    "x" * 255: (0, 0, 0, 4, 4, 18),
}
"""The shards that these keys have had since the first release: jobs of today are there."""


def test_each_key_keeps_its_shard() -> None:
    found = {key: tuple(number_of_key(key, count) for count in COUNTS) for key in VECTORS}

    assert found == VECTORS
    assert {number_of_key(key, 1) for key in VECTORS} == {0}


def test_a_new_shard_takes_keys_from_all_others_and_moves_none_between_them() -> None:
    keys = [f"order-{number}" for number in range(2_000)]
    before, after = ([number_of_key(key, count) for key in keys] for count in (3, 4))
    moved = [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]]

    assert set(moved) == {(0, 3), (1, 3), (2, 3)}
    assert 400 < len(moved) < 600


@pytest.mark.parametrize("first_id", [0, 1, 63, 64, 1_000_003])
def test_an_id_names_its_shard_from_the_first_id_on(first_id: int) -> None:
    for number in (0, 1, 63):
        first = first_id_of_shard(number, first_id)
        assert first_id < first <= first_id + MAX_SHARDS
        assert number_of_id(first, first_id) == number
        assert number_of_id(first + MAX_SHARDS, first_id) == number
    assert number_of_id(first_id, first_id) == number_of_id(1, first_id + 1) == 0
