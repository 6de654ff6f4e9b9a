"""One clock: the database's. Python's clock is corrected by the measured offset.

The offset is measured where a connection opens, at most once a minute, and by each worker's
heartbeat; so machines whose clocks disagree still agree on what is due, and reading the time
costs no query.
"""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import DatabaseError, connections
from django.utils import timezone

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

logger = logging.getLogger("hipq_django")

_MEASURE_EVERY_SECONDS = 60.0
_WORTH_A_WARNING = timedelta(seconds=5)
_offsets: dict[str, timedelta] = {}
_measured_at: dict[str, float] = {}


def now(using: str) -> datetime:
    """Return the database's time as an aware datetime in UTC."""
    return timezone.now().astimezone(UTC) + _offsets.get(using, timedelta())


def measure(using: str) -> timedelta:
    """Measure and keep how far the database's clock is ahead of this process's; return it."""
    connection = connections[using]
    return _measure(connection) if connection.vendor == "postgresql" else timedelta()


def measure_on_connect(connection: BaseDatabaseWrapper, **_: Any) -> None:
    """Receive `connection_created`: measure unless that was done a moment ago.

    An embedded database has no clock of its own. Without time zones hipq_django refuses to work,
    but not the rest of the project.
    """
    if connection.vendor != "postgresql" or not settings.USE_TZ:
        return
    last = _measured_at.get(connection.alias)
    if last is None or time.monotonic() - last > _MEASURE_EVERY_SECONDS:
        try:
            _measure(connection)
        except DatabaseError:
            logger.warning("database=%s clock could not be measured", connection.alias)


def _measure(connection: BaseDatabaseWrapper) -> timedelta:
    before = timezone.now()
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        theirs: datetime = cursor.fetchone()[0]
    after = timezone.now()
    return _keep(connection.alias, _offset(theirs - after, theirs - before))


def _offset(least: timedelta, most: timedelta) -> timedelta:
    """Return the middle of what the offset may be; none where the clocks may well agree.

    Else the noise of a measurement would hold back a job whose time has just come.
    """
    return timedelta() if least <= timedelta() <= most else (least + most) / 2


def _keep(using: str, offset: timedelta) -> timedelta:
    if abs(offset - _offsets.get(using, timedelta())) > _WORTH_A_WARNING:
        logger.warning("database=%s clock_offset_seconds=%.3f", using, offset.total_seconds())
    _offsets[using] = offset
    _measured_at[using] = time.monotonic()
    return offset
