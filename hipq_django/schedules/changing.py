"""How the row of a schedule is changed, by a verb or by new code; the caller has locked it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import transaction

from hipq_django.domain.schedules import Cron, Every, Missed, passed_over
from hipq_django.domain.states import NONE
from hipq_django.models import Schedule, ScheduleRun

TIMES = ("cron", "every_seconds", "time_zone", "start_time", "end_time")


def create(row: Schedule, using: str, now: datetime) -> None:
    """Write a new row, due from now on; raise `IntegrityError` if its name has just been taken."""
    row.create_time = row.update_time = now
    row.next_time = row.spec.next(now)
    with transaction.atomic(using=using):
        row.save(using=using, force_insert=True)


def change(row: Schedule, changed: Mapping[str, Any], now: datetime) -> list[str]:
    """Give a row new values, which are not written yet; return the names of all that differ.

    New times count from now on, and what was due until now is skipped. What the row says may be
    what nobody can read, and this the way to put it right, so it is fired without delay again.
    """
    if changed.keys() & set(TIMES):
        pass_over(row, now, "edited", ScheduleRun.Kind.SKIPPED)
    for field, value in changed.items():
        setattr(row, field, value)
    if changed.keys() & set(TIMES):
        row.next_time = next_time_of(row, now)
    row.problem, row.update_time = NONE, now
    return [*changed, "next_time", "problem", "update_time"]


def pass_over(
    row: Schedule, now: datetime, reason: str, kind: str = ScheduleRun.Kind.MISSED
) -> None:
    """Note the due times that have come and of which no job is made."""
    if row.next_time is None or row.next_time > now:
        return
    run = run_of(row, passed_over(_spec_of(row), row.next_time, now), now)
    run.kind, run.reason = kind, reason
    run.save(using=row.using, force_insert=True)


def run_of(row: Schedule, missed: Missed, now: datetime) -> ScheduleRun:
    """Return the run of due times that no job is made of."""
    until = missed.until if missed.number > 1 else None
    return ScheduleRun(
        schedule=row, due_time=missed.first, kind=ScheduleRun.Kind.MISSED, until=until,
        count=missed.number, reason="nobody saw it in time", create_time=now,
    )  # fmt: skip


def next_time_of(row: Schedule, now: datetime) -> datetime | None:
    """Return the first due time after now.

    A row that cannot be read is looked at now, by the firing, which says what is wrong with it.
    """
    spec = _spec_of(row)
    return (row.next_time or now) if spec is None else spec.next(now)


def _spec_of(row: Schedule) -> Cron | Every | None:
    """Return when the row is due; None where it cannot be read."""
    try:
        return row.spec
    except Exception:  # whatever somebody has written into it
        return None
