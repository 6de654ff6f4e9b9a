"""The moment at which the frozen clock of tests stands."""

from datetime import UTC, datetime

MONDAY_NOON = datetime(2025, 1, 6, 12, tzinfo=UTC)
