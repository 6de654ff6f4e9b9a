"""What these tests share with those of single steps."""

from tests.integration.conftest import frozen_time

__all__ = ["frozen_time"]
