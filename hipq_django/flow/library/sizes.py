"""How large something will be as JSON, worked out before it is made. Pure.

A few bytes may ask for more than any memory holds: all orders of twenty elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hipq_django.domain.serialization import encode_json

BRACKETS = COMMA = 2
"""How many bytes `[]` and `, ` have."""


def size_of(value: Any) -> int:
    """Return how many bytes a value has."""
    return len(encode_json(value).encode())


def size_of_all(values: Iterable[Any]) -> int:
    """Return how many bytes values have, without what is between them."""
    return sum(map(size_of, values))


def size_of_lists(count: int, length: int, inside: int) -> int:
    """Return how many bytes a list of so many lists has, each of `length` values.

    All these values together have `inside` bytes.
    """
    return _list(count, count * _list(length, 0) + inside)


def _list(length: int, inside: int) -> int:
    return BRACKETS + COMMA * max(length - 1, 0) + inside


def size_of_product(lists: Sequence[Sequence[Any]], most: int) -> int:
    """Return how many bytes all choices have of one element of each list; `most + 1` if more."""
    count = number_of_products([len(values) for values in lists], most)
    if count > most:
        return most + 1
    inside = sum(count // len(values) * size_of_all(values) for values in lists if values)
    return size_of_lists(count, len(lists), inside)


def size_of_choices(
    values: Sequence[Any], n: int, *, is_ordered: bool, may_repeat: bool, most: int
) -> int:
    """Return how many bytes all choices of n of the values have; `most + 1` if there are more.

    All values are chosen equally often.
    """
    count = number_of_choices(
        len(values), n, is_ordered=is_ordered, may_repeat=may_repeat, most=most
    )
    if count > most:
        return most + 1
    inside = count * n * size_of_all(values) // len(values) if values else 0
    return size_of_lists(count, n, inside)


def size_of_groups(values: Sequence[Any], size: int, *, fill: Any, is_filled: bool) -> int:
    """Return how many bytes the lists of `size` values have into which these are cut."""
    count = -(-len(values) // size)
    places = count * size if is_filled else len(values)
    inside = size_of_all(values)
    if is_filled and places > len(values):
        inside += (places - len(values)) * size_of(fill)
    commas = COMMA * (places - count)
    return _list(count, count * BRACKETS + commas + inside)


def number_of_products(lengths: Sequence[int], most: int) -> int:
    """Return how many choices of one element of each list there are; `most + 1` if more."""
    return 0 if 0 in lengths else _multiplied(lengths, most)


def number_of_choices(size: int, n: int, *, is_ordered: bool, may_repeat: bool, most: int) -> int:
    """Return how many choices of n of so many there are; `most + 1` if there are more."""
    if may_repeat and not size:
        return int(n == 0)
    if may_repeat and is_ordered:
        return 1 if size == 1 else _multiplied((size for _ in range(n)), most)
    if may_repeat:
        return _binomial(size + n - 1, n, most)
    if n > size:
        return 0
    return _multiplied(range(size, size - n, -1), most) if is_ordered else _binomial(size, n, most)


def _multiplied(factors: Iterable[int], most: int) -> int:
    """Return the product of factors above 0; it is not worked out above `most`."""
    made = 1
    for factor in factors:
        made *= factor
        if made > most:
            return most + 1
    return made


def _binomial(size: int, n: int, most: int) -> int:
    made = 1
    for chosen in range(min(n, size - n)):
        made = made * (size - chosen) // (chosen + 1)
        if made > most:
            return most + 1
    return made
