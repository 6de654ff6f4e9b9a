"""One clock: the database's, carried on between two measurements by a monotonic clock.

So a step of a machine's own clock has no effect, and machines whose clocks differ agree on what is
due. The database's time is measured by each worker's heartbeat, when a connection opens, and when a
process asks for the time on an open connection; the last two at most once a minute.
"""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from django.conf import settings
from django.db import DatabaseError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import DateTimeField, Func
from django.utils import timezone

from hipq_django import events

_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""If the platform allows it, the time for which the machine was suspended counts too."""

_MEASURE_EVERY_SECONDS = 60.0
_WORTH_A_WARNING = timedelta(seconds=5)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Measured(NamedTuple):
    """What is known of a database's clock."""

    zero: datetime
    """The database's time when the steady clock was at zero."""
    at: float
    """When that was measured, by the steady clock."""


_measured: dict[str, _Measured] = {}
_offsets: dict[str, timedelta] = {}
"""How far the databases' clocks were ahead of this process's at the last measurement."""
_follows_process = False
_shift = timedelta()
"""By how much a test has moved this process's clock."""


steady = partial(time.clock_gettime, _STEADY)
"""Return the seconds since some moment in the past, by a clock that is never set."""


def now(using: str) -> datetime:
    """Return the database's time as an aware datetime in UTC."""
    if _follows_process:
        return _process_time() + _shift
    moment = steady()
    known = _measured.get(using)
    if known is None or moment - known.at > _MEASURE_EVERY_SECONDS:
        known = _renewed(using, known)
    seconds = int(moment)
    # Of whole numbers a timedelta is made in a third of the time.
    return known.zero + timedelta(0, seconds, int((moment - seconds) * 1e6))


class _StatementTime(Func):
    """When the database began the statement: unlike the time of the moment, an index serves it."""

    template = "statement_timestamp()"
    output_field = DateTimeField()


def in_statement(using: str) -> Any:
    """Return the current time for a statement that must use the database's own clock.

    A database that has no clock of its own is given this process's.
    """
    has_clock = connections[using].vendor == "postgresql" and not _follows_process
    return _StatementTime() if has_clock else now(using)


def follow_process(*, follows: bool = True) -> None:
    """Use this process's clock, which tests can freeze; or stop doing so.

    For processes that need not agree with others on the time.
    """
    global _follows_process  # noqa: PLW0603 - the clock of this process
    _follows_process = follows


def shift(by: timedelta | None = timedelta()) -> timedelta:
    """Move the clock of a process that uses its own, on by `by`; return how far it is moved.

    Without `by` nothing moves; None sets it back.
    """
    global _shift  # noqa: PLW0603 - the clock of this process
    _shift = timedelta() if by is None else _shift + by
    return _shift


def measure(using: str) -> timedelta:
    """Measure the database's clock; return how far it is ahead of this process's."""
    connection = connections[using]
    if connection.vendor == "postgresql":
        return _measure(connection)
    _read_process_clock(using)
    return timedelta()


def measure_on_connect(connection: BaseDatabaseWrapper, **_: Any) -> None:
    """Receive `connection_created`: measure unless that was done a moment ago.

    Without time zones hipq_django refuses to work, but not the rest of the project.
    """
    known = _measured.get(connection.alias)
    is_fresh = known is not None and steady() - known.at <= _MEASURE_EVERY_SECONDS
    has_clock = connection.vendor == "postgresql" and settings.USE_TZ
    if not has_clock or is_fresh or _follows_process:
        return
    try:
        _measure(connection)
    except DatabaseError:
        events.warning("clock_not_measured", database=connection.alias)


def _renewed(using: str, known: _Measured | None) -> _Measured:
    """Measure again if a connection is open; the first time in any case."""
    connection = connections[using]
    if connection.vendor != "postgresql":
        _read_process_clock(using)
    elif known is None:
        connection.ensure_connection()  # which measures, unless that failed
        if using not in _measured:
            _measure(connection)
    elif connection.connection is not None:
        with suppress(DatabaseError):  # the next user of the connection will report it
            _measure(connection)
    return _measured[using]


def _read_process_clock(using: str) -> None:
    """An embedded database has no clock of its own: its time is that of this machine."""
    moment = steady()
    _measured[using] = _Measured(_process_time() - timedelta(seconds=moment), moment)


def _measure(connection: BaseDatabaseWrapper) -> timedelta:
    before = steady()
    with connection.cursor() as cursor:
        cursor.execute("SELECT EXTRACT(EPOCH FROM clock_timestamp())::float8")
        theirs = _EPOCH + timedelta(seconds=cursor.fetchone()[0])
    after = steady()
    least, most = theirs - timedelta(seconds=after), theirs - timedelta(seconds=before)
    return _keep(connection.alias, least, most, after)


def _keep(using: str, least: datetime, most: datetime, moment: float) -> timedelta:
    """Note the bounds of the database's time when the steady clock was 0; return the offset.

    The earlier value is kept as long as it is within them; otherwise the noise of a measurement
    could hold back a job whose time has just come.
    """
    ours = _process_time() - timedelta(seconds=steady())
    known = _measured.get(using)
    zero = min(max(known.zero if known else ours, least), most)
    _measured[using] = _Measured(zero, moment)
    offset = zero - ours
    if abs(offset - _offsets.get(using, timedelta())) > _WORTH_A_WARNING:
        events.warning(
            "clock_offset", "this machine's clock differs from the database's, which is used",
            database=using, offset_seconds=offset.total_seconds(),
        )  # fmt: skip
    _offsets[using] = offset
    return offset


def _process_time() -> datetime:
    return timezone.now().astimezone(UTC)
