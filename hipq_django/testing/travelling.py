"""Moves hipq's clock, from one thing that happens to the next."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from hipq_django.conf.instances import InstanceSettings, get_instance
from hipq_django.conf.rules import DEFAULT
from hipq_django.database import clock
from hipq_django.domain.validation import aware_moment
from hipq_django.models import Job, Schedule
from hipq_django.testing import partners
from hipq_django.testing.running import Session

HELD_STEP, LONGEST_STEP = timedelta(seconds=1), timedelta(minutes=1)
"""How far to go on while due jobs are held back: first, and at most. Nobody knows for how long."""


def run_for(*, instance: str = DEFAULT, raise_errors: bool = True, **duration: float) -> int:
    """Run what happens within this time; return how many handlers ran.

    `run_for(minutes=2)`, with the names of `timedelta`. The clock moves from event to event: due
    times, retries, windows, timeouts, schedules and the answers of partners; at the end it is that
    much later.
    """
    until = clock.now(get_instance(instance).database) + timedelta(**duration)
    return run_until(until, instance=instance, raise_errors=raise_errors)


def run_until(moment: datetime, *, instance: str = DEFAULT, raise_errors: bool = True) -> int:
    """Do the same until a moment, an aware datetime."""
    until = aware_moment("run_until", moment)
    with Session(instance=instance, raise_errors=raise_errors) as session:
        config, step = session.config, HELD_STEP
        while True:
            ran = session.runner.ran
            session.run_due()
            now = clock.now(config.database)
            if now >= until:
                return session.runner.ran
            step = HELD_STEP if session.runner.ran > ran else min(2 * step, LONGEST_STEP)
            after = _next_event(config, now)
            if _is_held_back(config, now):
                after = min(after or until, now + step)
            clock.shift(min(after or until, until) - now)


@contextmanager
def travel(to: datetime | None = None, **duration: float) -> Iterator[None]:
    """Move hipq's clock for a block: to an aware datetime, or on by a time, `travel(days=3)`.

    Nothing runs by that. Only hipq's own clock moves, not Django's: to move both, use time-machine
    or freezegun, which hipq follows too.
    """
    before = clock.shift()
    now = clock.now(get_instance(DEFAULT).database)
    there = now + timedelta(**duration) if to is None else aware_moment("travel", to)
    clock.shift(there - now)
    try:
        yield
    finally:
        clock.shift(before - clock.shift())


def _next_event(config: InstanceSettings, now: datetime) -> datetime | None:
    """Return when something happens next by itself."""
    using = config.database
    jobs = Job.objects.using(using).filter(queue__instance=config.name)
    waiting = jobs.waiting().filter(scheduled_run_time__gt=now, hold_time__isnull=True)
    schedules = Schedule.objects.using(using).filter(
        instance=config.name, paused=False, retired=False, next_time__gt=now
    )
    moments = [
        waiting.order_by("scheduled_run_time").values_list("scheduled_run_time", flat=True).first(),
        jobs.running().order_by("deadline").values_list("deadline", flat=True).first(),
        schedules.order_by("next_time").values_list("next_time", flat=True).first(),
        partners.next_answer(),
    ]
    return min((moment for moment in moments if moment is not None and moment > now), default=None)


def _is_held_back(config: InstanceSettings, now: datetime) -> bool:
    due = Job.objects.using(config.database).filter(queue__instance=config.name).waiting()
    return due.filter(scheduled_run_time__lte=now, queue__paused=False).exists()
