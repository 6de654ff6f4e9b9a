"""How much memory something takes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any


def deep(value: Any) -> Any:
    """Return a value below 400 long keys."""
    for _ in range(400):
        value = {"k" * 100: value}
    return value


def peak_of(step: Callable[[], object]) -> int:
    """Return how many bytes a step takes at most, besides what was there before."""
    tracemalloc.start()
    try:
        step()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
