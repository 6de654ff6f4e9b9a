"""One clock: the database's, carried on between two measurements by one that no step moves.

So no step of a machine's own clock is believed, and machines whose clocks disagree agree on what is
due. The database's time is measured by each worker's heartbeat, where a connection opens, and by
who asks for the time on an open connection; by the last two at most once a minute.
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
"""Where the platform can tell, the time for which the machine was suspended counts too."""

_MEASURE_EVERY_SECONDS = 60.0
_WORTH_A_WARNING = timedelta(seconds=5)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _Measured(NamedTuple):
    """What is known of a database's clock."""

    zero: datetime
    """The database's time when the steady clock stood at nothing."""
    at: float
    """When that was measured, by the steady clock."""


_measured: dict[str, _Measured] = {}
_offsets: dict[str, timedelta] = {}
"""How far the databases' clocks were ahead of this process's at the last measurement."""
_follows_process = False


steady = partial(time.clock_gettime, _STEADY)
"""Return seconds since some moment in the past, by a clock that no step of the time moves."""


def now(using: str) -> datetime:
    """Return the database's time as an aware datetime in UTC."""
    if _follows_process:
        return timezone.now().astimezone(UTC)
    moment = steady()
    known = _measured.get(using)
    if known is None or moment - known.at > _MEASURE_EVERY_SECONDS:
        known = _renewed(using, known)
    return known.zero + timedelta(seconds=moment)


class _StatementTime(Func):
    """When the database began the statement: unlike the time of the moment, an index serves it."""

    template = "statement_timestamp()"
    output_field = DateTimeField()


def in_statement(using: str) -> Any:
    """Return what a statement compares with where it must be the database that knows the time.

    A database that has no clock of its own is given this process's.
    """
    has_clock = connections[using].vendor == "postgresql" and not _follows_process
    return _StatementTime() if has_clock else now(using)


def follow_process(*, follows: bool = True) -> None:
    """Let the time be that of this process's clock, which tests can freeze; or no longer.

    For processes in which there is nobody else to agree with.
    """
    global _follows_process  # noqa: PLW0603 - the clock of this process
    _follows_process = follows


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
    """Measure anew where that opens no connection; for the first time in any case."""
    connection = connections[using]
    if connection.vendor != "postgresql":
        _read_process_clock(using)
    elif known is None:
        connection.ensure_connection()  # which measures, but where that failed
        if using not in _measured:
            _measure(connection)
    elif connection.connection is not None:
        with suppress(DatabaseError):  # whoever is about to use the connection will say so
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
    """Note the measured limits of the time at nothing; return the offset.

    What was believed before is kept as long as it is within them: else the noise of a measurement
    would hold back a job whose time has just come.
    """
    ours = _process_time() - timedelta(seconds=steady())
    known = _measured.get(using)
    zero = min(max(known.zero if known else ours, least), most)
    _measured[using] = _Measured(zero, moment)
    offset = zero - ours
    if abs(offset - _offsets.get(using, timedelta())) > _WORTH_A_WARNING:
        events.warning(
            "clock_offset", "this machine's clock differs from the database's, which counts",
            database=using, offset_seconds=offset.total_seconds(),
        )  # fmt: skip
    _offsets[using] = offset
    return offset


def _process_time() -> datetime:
    return timezone.now().astimezone(UTC)
