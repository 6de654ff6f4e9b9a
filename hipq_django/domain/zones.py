"""When the clocks of a time zone change. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import chain, pairwise

_SECOND = timedelta(seconds=1)


def offset_at(moment: datetime, zone: tzinfo) -> timedelta:
    """Return the offset of a zone from UTC."""
    return moment.astimezone(zone).utcoffset() or timedelta(0)


@lru_cache(maxsize=512)
def _changes(year: int, zone: tzinfo) -> tuple[datetime, ...]:
    """Return the moments of a year at which the offset of a zone changes."""
    days = [datetime(year, 1, 1, tzinfo=UTC) + timedelta(days=n) for n in range(367)]
    found = [
        _bisected(before, after, zone)
        for before, after in pairwise(days)
        if offset_at(before, zone) != offset_at(after, zone)
    ]
    return tuple(change for change in found if change.year == year)


def _bisected(before: datetime, after: datetime, zone: tzinfo) -> datetime:
    offset = offset_at(before, zone)
    while after - before > _SECOND:
        middle = (before + (after - before) / 2).replace(microsecond=0)
        if offset_at(middle, zone) == offset:
            before = middle
        else:
            after = middle
    return after


def next_change(moment: datetime, zone: tzinfo) -> datetime | None:
    """Return the first change after a moment; None if there is none in this year and the next."""
    year = moment.astimezone(UTC).year
    changes = chain(_changes(year, zone), _changes(year + 1, zone))
    return next((change for change in changes if change > moment), None)


def last_change(moment: datetime, zone: tzinfo) -> datetime | None:
    """Return the last change up to a moment, in this year or the one before."""
    year = moment.astimezone(UTC).year
    changes = (*_changes(year - 1, zone), *_changes(year, zone))
    return next((change for change in reversed(changes) if change <= moment), None)
