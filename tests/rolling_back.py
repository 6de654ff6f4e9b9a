"""Undo what a part of a test writes, so that the next part begins with the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import transaction


@contextmanager
def rolled_back() -> Iterator[None]:
    """Roll back what is written inside."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)
