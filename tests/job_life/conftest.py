"""What these tests share with those of single steps."""

from tests.integration.conftest import declare, frozen_time

__all__ = ["declare", "frozen_time"]
