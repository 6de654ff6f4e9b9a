"""What a worker does at intervals for its whole instance; each duty is independent."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import Error, connections

from hipq_django import events
from hipq_django.conf.instances import InstanceSettings
from hipq_django.database.errors import said_of
from hipq_django.database.isolation import Isolation, patience_with
from hipq_django.dependencies.unholding import Sweep
from hipq_django.domain.pauses import pause_after
from hipq_django.maintenance import early_answers, recovery, reranking
from hipq_django.maintenance.undeclared import UndeclaredTypes
from hipq_django.models import Worker

OFTEN_SECONDS = 1.0
"""Between two looks of what jobs wait for: how late a timeout or a due time may be noticed."""
SELDOM_SECONDS = 60.0
"""Between two looks of what nobody waits for."""
SHARE = 0.03
"""The share of time for a duty that finds nothing: among millions of dead rows it is slow."""
MOVING_SHARE = 0.25
"""The share of time for a duty that finds something, and may have more to do."""
WAIT_SECONDS = 0.5
"""How long a duty that found nothing the last time waits for an idle moment of a busy worker."""
MAX_PAUSE_SECONDS = 30.0
"""How long a duty that fails, or takes long, is left at most, if its interval is not longer."""
MAX_DOUBLINGS = 6
"""How often the pause of a duty that fails is doubled."""


@dataclass(slots=True)
class Duty:
    """Something to be done at an interval in seconds; it returns how many rows it moved."""

    name: str
    seconds: float
    do: Callable[[], int]
    next_due: Callable[[], float] | None = None
    """When it is to be done again, where that is known to it, and then at once."""
    due: float = 0.0
    failures: int = 0
    left_alone: Isolation[Any] | None = None
    """The rows that it leaves alone; these are no failure of the duty."""
    moved: int = 0
    """How many rows it moved the last time."""
    _took: float = field(default=0.0, init=False, repr=False)
    """How many seconds it took the last time."""

    def rest(self, took: float, moved: int) -> float:
        """Note that it took so many seconds and moved so many rows; return for how long to rest.

        What took long only once does not count: the database may have stood still.
        """
        usual, self._took = min(took, self._took), took
        if moved:
            return pause_after(usual, MOVING_SHARE, most=min(OFTEN_SECONDS, self.seconds))
        return pause_after(usual, SHARE, least=self.seconds, most=self.longest_pause)

    @property
    def longest_pause(self) -> float:
        """How many seconds it is left at most."""
        return max(self.seconds, MAX_PAUSE_SECONDS)

    @property
    def has_more(self) -> bool:
        """Whether something waits for it, or may wait."""
        return self.next_due is not None or self.moved > 0


def often_seconds(config: InstanceSettings) -> float:
    """Return how often a worker looks at what jobs wait for."""
    return min(OFTEN_SECONDS, config.heartbeat_seconds)


def duties_of_instance(config: InstanceSettings, worker: Worker) -> list[Duty]:
    """Return the duties that need nothing of the process that does them."""
    beat, often = config.heartbeat_seconds, often_seconds(config)
    sweep, early = Sweep(config), early_answers.EarlyAnswers(config)
    not_expired = Isolation[int]("expire_early", "answer_id")

    def expire_early() -> int:
        return early_answers.expire_early(config, not_expired)

    return [
        Duty("match_early", often, early.match, left_alone=early.left_alone),
        Duty("unhold_jobs", often, sweep.run, left_alone=sweep.left_alone),
        Duty("expire_early", beat, expire_early, left_alone=not_expired),
        Duty("warn_of_undeclared", beat, UndeclaredTypes(config, worker).warn),
        Duty("continue_ranking", beat, lambda: reranking.continue_ranking(config)),
        Duty("find_strays", SELDOM_SECONDS, lambda: reranking.find_strays(config)),
        Duty("forget_workers", SELDOM_SECONDS, lambda: recovery.forget_workers(config)),
    ]


class Duties:
    """Does the duties. One that fails is logged and tried again later; the others go on.

    `tell(name, error)` is called after each, with None where it succeeded and left nothing alone.
    """

    def __init__(
        self, using: str, duties: Sequence[Duty], tell: Callable[[str, Exception | None], None]
    ) -> None:
        self._using = using
        self._duties = duties
        self._tell = tell
        self.doing = ""
        """The name of the duty that is being done."""

    def run(self, *, all_of_it: bool, waits: bool) -> int:
        """Do the duties that are due, or all; return how many rows they moved.

        A duty that moved something may have more to do, and is soon due again. In a busy worker
        the others may wait a little for an idle moment.
        """
        total, now = 0, time.monotonic()
        try:
            for duty in self._duties:
                if now < duty.due and not all_of_it:  # as nearly always
                    continue
                patience = WAIT_SECONDS if waits and not duty.has_more else 0.0
                if all_of_it or now >= duty.due + patience:
                    self.doing = duty.name
                    total += self._do(duty)
                    now = time.monotonic()
        finally:
            self.doing = ""
        return total

    def forget(self) -> None:
        """Make all duties due at the next pass; after an error nothing is certain."""
        for duty in self._duties:
            if not duty.failures:
                duty.due = 0.0

    def _do(self, duty: Duty) -> int:
        began = time.monotonic()
        try:
            moved = duty.do()
        except Exception as error:
            if isinstance(error, Error) and not connections[self._using].is_usable():
                raise
            moved, pause = 0, self._note_failure(duty, error)
        else:
            duty.failures = 0
            self._tell(duty.name, duty.left_alone.error if duty.left_alone else None)
            pause = duty.rest(time.monotonic() - began, moved)
        duty.moved = moved
        duty.due = time.monotonic() + pause * random.uniform(0.8, 1.2)  # noqa: S311 - no secret
        if duty.next_due is not None and not duty.failures:
            duty.due = duty.next_due()
        return moved

    def _note_failure(self, duty: Duty, error: Exception) -> float:
        """Report it; return after how many seconds the duty is tried again."""
        duty.failures += 1
        doubled: float = duty.seconds * 2 ** min(duty.failures, MAX_DOUBLINGS)
        pause = min(doubled, duty.longest_pause)
        about: dict[str, Any] = {"duty": duty.name, "seconds": round(pause, 1)}
        if patience_with(error):
            sentence = "somebody has locked what it needs, or the server is slow"
            events.warning("duty_skipped", sentence, **about, error=said_of(error))
        else:
            events.error("duty_failed", "tried again later", **about, exception=error)
        self._tell(duty.name, error)
        return pause
