"""The mixin for unittest, and what all tests leave as they found it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hipq_django.database import clock
from hipq_django.job_types import registry
from hipq_django.testing.partners import Asked, Partner, forget_partners, partner

if TYPE_CHECKING:
    from unittest import TestCase as _Base
else:
    _Base = object


def reset() -> None:
    """Set hipq's clock back, and forget the partners."""
    clock.shift(None)
    forget_partners()


@contextmanager
def restored() -> Iterator[None]:
    """Let a test leave clock, partners and declarations as it has found them."""
    reset()
    before = registry.remember()
    try:
        yield
    finally:
        registry.restore(before)
        reset()


class HipqTestCase(_Base):
    """A mixin for test cases that use partners, move the clock or declare: all end with the test.

    `class OrderTest(HipqTestCase, TestCase)`: the mixin first, or unittest does not set it up.
    """

    def setUp(self) -> None:
        """Let nothing of an earlier test be left."""
        super().setUp()
        self.enterContext(restored())

    def partner(self, job_type: Asked, response: Any = None, **options: Any) -> Partner:
        """Let a partner answer the jobs of a type; see `hipq_django.testing.partner`."""
        return partner(job_type, response, **options)
