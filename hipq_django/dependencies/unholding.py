"""Lets held jobs go on when those that they wait for have ended.

It reads states and keeps no counter. After each commit by which jobs became final, the process that
made it checks the jobs that wait for them; the last of several sees all of them final. If several
processes check at the same moment, a guarded update lets one win. The sweep finds what a crash has
left.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from hipq_django import events, transitions
from hipq_django.answers.cancelling import cancel_locked
from hipq_django.conf.instances import InstanceSettings
from hipq_django.database import clock
from hipq_django.database.isolation import Isolation
from hipq_django.database.locks import locked
from hipq_django.database.presence import Presence
from hipq_django.database.transactions import worker_transaction
from hipq_django.dependencies.gathered import DUTY, tell_links, tell_page
from hipq_django.dependencies.needs import dependents_of, verdicts
from hipq_django.domain.dependencies import FOLLOWED, Verdict
from hipq_django.engines import engine_for
from hipq_django.extensions import Extension
from hipq_django.models import Batch, Job, Link

PAGE_SIZE = 200
"""How many jobs are unheld in one transaction, whose locks others meet."""
MOST_AT_ONCE = 500
"""How many jobs the process that ended their needs unholds; the sweep does the rest."""
MOST_STEPS = 100
"""How many jobs of a chain it cancels one after the other, while other queues wait."""

NO_LINK_SECONDS = 60.0
"""How often the sweep looks at held jobs although there is no link."""


@dataclass(slots=True)
class _ToLookAt:
    """What is still to be looked at."""

    ended: list[int] = field(default_factory=list)
    """Jobs that have ended, and what waits for them has not been looked for."""
    held: list[int] = field(default_factory=list)


class _UnderWay(threading.local):
    """What the call in which this thread is has still to look at, by database alias."""

    def __init__(self) -> None:
        self.left: dict[str, _ToLookAt] = {}


_under_way = _UnderWay()


class DependenciesExtension(Extension):
    """Lets what follows jobs go on when these have ended."""

    def may_follow(self, using: str) -> bool:
        """Return whether there may be links."""
        return any_links.is_possible(using)

    def jobs_ended(self, ids: Collection[int], using: str) -> None:
        """Unhold what waited for them."""
        unhold_after(ids, using)


def unhold_after(ids: Collection[int], using: str) -> bool:
    """Unhold what waited for these ended jobs, if all else that it waits for has ended, too.

    Return whether there are links at all.
    """
    if using in _under_way.left:  # a job was cancelled, whose commit calls this
        _under_way.left[using].ended += ids
        return True
    found = any_links(using)
    if found:
        _work_off(_ToLookAt(ended=[*ids]), using, Isolation(DUTY))
    return found


def has_links(using: str) -> bool:
    """Return whether anything waits for anything, or did until it was pruned."""
    return Link.objects.using(using).exists()


any_links = Presence(has_links)


def unhold_or_cancel(
    held: Sequence[int], using: str, left_alone: Isolation[int] | None = None
) -> int:
    """Unhold or cancel held jobs, as their needs have ended; return how many.

    The jobs that follow a cancelled one are checked in turn. `left_alone` keeps the jobs that
    earlier calls could not write.
    """
    if using in _under_way.left:
        _under_way.left[using].held += held
        return 0
    return _work_off(_ToLookAt(held=[*held]), using, left_alone or Isolation(DUTY))


def _work_off(left: _ToLookAt, using: str, left_alone: Isolation[int]) -> int:
    """Check what is left, and what is added to it meanwhile; return how many jobs moved.

    A commit that cancels jobs calls `unhold_after` again. In a long chain these calls would lie
    inside each other, so while one runs, the others only add to what is left.
    """
    moved, _under_way.left[using] = 0, left
    try:
        for _ in range(MOST_STEPS):
            follow = dependents_of({*left.ended}, using)
            held = [*left.held, *follow.held[: max(0, MOST_AT_ONCE - moved)]]
            left.ended, left.held = [], []
            for start in range(0, len(held), PAGE_SIZE):
                moved += _check(held[start : start + PAGE_SIZE], left, using, left_alone)
            tell_links(follow.parts, using)
            if not (left.ended or left.held):
                break
    finally:
        del _under_way.left[using]
    return moved


def _check(held: Sequence[int], left: _ToLookAt, using: str, left_alone: Isolation[int]) -> int:
    page = verdicts(held, using)
    go = {pk: said for pk, said in page.items() if said.may_go}
    broken = {pk: said for pk, said in page.items() if said.problem}
    moved = left_alone.move(list(go), partial(_unhold, go, using=using))
    return moved + left_alone.move(list(broken), partial(_cancel, broken, left, using=using))


def _unhold(go: Mapping[int, Verdict], ids: Sequence[int], using: str) -> int:
    """Give jobs that may go on their time and place; locked rows are left."""
    with worker_transaction(using):
        jobs = _locked(go, ids, using)
        transitions.unhold(jobs, clock.now(using), using)
        for instance in {job.queue.instance for job in jobs}:
            queues = {job.queue_id for job in jobs if job.queue.instance == instance}
            engine_for(using).wake_workers(instance, queues)
    for job in jobs:
        events.info("job_unblocked", row=job)
    return len(jobs)


def _cancel(broken: Mapping[int, Verdict], left: _ToLookAt, ids: Sequence[int], using: str) -> int:
    """Cancel jobs that can never go on; what follows them is looked at next."""
    with worker_transaction(using):
        jobs = _locked(broken, ids, using)
        for problem in {broken[job.pk].problem for job in jobs}:
            alike = [job for job in jobs if broken[job.pk].problem == problem]
            cancel_locked(alike, problem + FOLLOWED, using)
    left.ended += [job.pk for job in jobs]
    return len(jobs)


def _locked(judged: Mapping[int, Verdict], ids: Sequence[int], using: str) -> list[Job]:
    """Lock held jobs, without those that others have locked.

    What follows a batch is judged again under a lock of the batch: a job that is requeued into it
    takes that first, and then looks what has to be requeued with it.
    """
    rows = Job.objects.using(using).held().filter(pk__in=ids).order_by("pk")
    jobs = list(locked(rows.select_related("queue", "job_type"), skip_locked=True))
    batches = {batch for job in jobs if (batch := judged[job.pk].batch) is not None}
    if not batches:
        return jobs
    busy = _busy(batches, using)
    again = verdicts([job.pk for job in jobs if judged[job.pk].batch not in busy], using)
    return [job for job in jobs if again.get(job.pk) == judged[job.pk]]


def _busy(batches: set[int], using: str) -> set[int]:
    """Lock batches; return those that others keep locked, but none that was pruned."""
    rows = Batch.objects.using(using).filter(pk__in=batches).order_by("pk")
    free = {batch.pk for batch in locked(rows, skip_locked=True, to_delete=True)}
    return set(rows.exclude(pk__in=free).values_list("pk", flat=True)) if free < batches else set()


class Sweep:
    """Goes through all held jobs and gathered parts, page by page, for what a crash has left."""

    def __init__(self, config: InstanceSettings) -> None:
        self._config = config
        self.left_alone = Isolation[int](DUTY)
        self._after = 0
        self._after_link = 0
        self._look_again = 0.0

    def run(self) -> int:
        """Check the next page of each; return how many jobs moved.

        A page where jobs move is checked again: more may follow them. Only a link holds a job, so
        while there is none this is done once in a while.
        """
        now = clock.steady()
        if now < self._look_again and not has_links(self._config.database):
            return 0
        self._look_again = now + NO_LINK_SECONDS
        return self._run_page()

    def run_all(self) -> int:
        """Check all of each, for code that goes on only once nothing moves any more: in tests."""
        if not has_links(self._config.database):
            return 0
        self._after = self._after_link = 0
        moved = self._run_page()
        while self._after or self._after_link:
            moved += self._run_page()
        return moved

    def _run_page(self) -> int:
        using, left = self._config.database, self.left_alone
        told, self._after_link = tell_page(self._after_link, MOST_AT_ONCE, left, using)
        rows = Job.objects.using(using).held().filter(pk__gt=self._after).order_by("pk")
        page = list(rows.values_list("pk", flat=True)[:MOST_AT_ONCE])
        moved = unhold_or_cancel([pk for pk in page if pk not in left.ids], using, left)
        if not moved:
            self._after = page[-1] if len(page) == MOST_AT_ONCE else 0
        return told + moved
