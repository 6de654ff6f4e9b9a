"""Moves hipq's clock, from one thing that happens to the next."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from django.db.models import Count, Min, Q

from hipq_django.conf.instances import get_instance
from hipq_django.conf.rules import DEFAULT
from hipq_django.database import clock
from hipq_django.domain.states import WAITING, State
from hipq_django.domain.validation import aware_moment
from hipq_django.exceptions import InvalidJobError
from hipq_django.models import Job
from hipq_django.models.job import JobQuerySet
from hipq_django.testing import partners
from hipq_django.testing.running import TIMEOUT, Sessions

HELD_STEP, LONGEST_STEP = timedelta(seconds=1), timedelta(minutes=1)
"""How far to go on while due jobs are held back: first, and at most. Nobody knows for how long."""


def run_for(
    *,
    instance: str = DEFAULT,
    raise_errors: bool = True,
    timeout: float = TIMEOUT,
    **duration: float,
) -> int:
    """Run what happens within this time; return how many handlers ran.

    `run_for(minutes=2)`, with the names of `timedelta`. The clock moves from event to event: due
    times, retries, windows, timeouts, schedules and the answers of partners; at the end it is that
    much later. Raise `NotDrainedError` if what is due at one moment takes more seconds than
    `timeout`.
    """
    opened = Sessions(instance=instance, raise_errors=raise_errors, timeout=timeout, verb="run_for")
    length = timedelta(**duration)
    if length < timedelta():
        raise InvalidJobError(f"run_for: {length} lies in the past; travel moves the clock back.")
    until = aware_moment("run_for", clock.now(get_instance(instance).database) + length)
    return _run_until(until, opened)


def run_until(
    moment: datetime,
    *,
    instance: str = DEFAULT,
    raise_errors: bool = True,
    timeout: float = TIMEOUT,
) -> int:
    """Run what happens until a moment, an aware datetime not in the past; see `run_for`."""
    opened = Sessions(
        instance=instance, raise_errors=raise_errors, timeout=timeout, verb="run_until"
    )
    until, now = aware_moment("run_until", moment), clock.now(get_instance(instance).database)
    if until < now:
        raise InvalidJobError(
            f"run_until: {until} lies in the past, for hipq's clock, which run_for, run_until and "
            f"travel move, is at {now}; run_due_jobs runs what is due, travel moves the clock back."
        )
    return _run_until(until, opened)


def _run_until(until: datetime, opened: Sessions) -> int:
    with opened as sessions:
        using, step = sessions.each[0].config.database, HELD_STEP
        while True:
            now, ran = clock.now(using), sessions.ran
            sessions.run_due()
            if now >= until:
                return sessions.ran
            step = HELD_STEP if sessions.ran > ran else min(2 * step, LONGEST_STEP)
            there = min([until, *_events(sessions, now, step)])
            # What has become due since `now` is run at once.
            clock.shift(max(there - clock.now(using), timedelta()))


@contextmanager
def travel(to: datetime | None = None, **duration: float) -> Iterator[None]:
    """Move hipq's clock for a block: to an aware datetime, or on by a time, `travel(days=3)`.

    Nothing runs by that. Only hipq's own clock moves, not Django's: to move both, use time-machine
    or freezegun, which hipq follows too.
    """
    if to is not None and duration:
        raise InvalidJobError(f"travel: to={to} and {duration} are given; give one of them.")
    before = clock.shift()
    now = clock.now(get_instance(DEFAULT).database)
    there = aware_moment("travel", now + timedelta(**duration) if to is None else to)
    clock.shift(there - now)
    try:
        yield
    finally:
        clock.shift(before - clock.shift())


def _events(sessions: Sessions, now: datetime, step: timedelta) -> list[datetime]:
    """Return when something happens by itself after `now`, and when to look again."""
    moments = [partners.next_answer()]
    for session in sessions.each:
        config = session.config
        live = Job.objects.using(config.database).filter(queue__instance=config.name).live()
        moments += [session.firing.next_time, *_events_of(live, now, step)]
    return [moment for moment in moments if moment is not None and moment > now]


def _events_of(live: JobQuerySet, now: datetime, step: timedelta) -> list[datetime | None]:
    """Return when something happens to live jobs."""
    due = Q(state__in=WAITING, scheduled_run_time__lte=now, queue__paused=False)
    later = Q(state__in=WAITING, scheduled_run_time__gt=now, hold_time=None)
    found = live.aggregate(
        held_back=Count("pk", filter=due),
        next=Min("scheduled_run_time", filter=later),
        deadline=Min("deadline", filter=Q(state=State.RUNNING, deadline__gte=now)),
    )
    overdue = found["deadline"] and found["deadline"] + timedelta(microseconds=1)
    return [now + step if found["held_back"] else None, found["next"], overdue]
