"""What workers do, and what time and crashes do to them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

from django.utils import timezone
from hypothesis import strategies as st

import hipq_django as hipq
from hipq_django.conf.instances import InstanceSettings
from hipq_django.domain.states import NONE, Phase
from hipq_django.maintenance import recovery
from tests.invariants import an_early_answer_saves_the_request
from tests.job_life.actors import END, Until
from tests.job_life.life import A_LONG_TIME, LIVE, Life, beat
from tests.job_life.moves import DUTIES, MAX_LIVE_JOBS, PICKS, SEATS, UNTIL, move, picked
from tests.job_life.scripts import (
    DECISIONS,
    ENDINGS,
    Ending,
    retry_at_once,
    return_value,
    usual,
)
from tests.job_life.worker import BESIDE, SteppedWorker
from tests.noon import MONDAY_NOON


class Workers(Life):
    """Two at a time, and those that are gone."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._numbers = count()

    @move(
        7,
        seat=SEATS,
        act=st.sampled_from(
            [
                SteppedWorker.run_pass,
                SteppedWorker.save,
                SteppedWorker.work,
                SteppedWorker.release_unconfirmed,
            ]
        ),
        until=UNTIL,
    )
    def schedule(self, seat: int, act: Callable[[SteppedWorker], Any], until: Until) -> None:
        self._schedule(self.workers[seat], act, until)

    def _enqueue(self, job_type: str, options: list[dict[str, Any]]) -> None:
        if len(self.before.in_state(*LIVE)) >= MAX_LIVE_JOBS:
            return
        new = [
            hipq.NewJob(job_type, job_key=f"new-{next(self._numbers)}", **values)
            for values in options
        ]
        self.steps.begin("enqueue", lambda: hipq.enqueue_many(new), END)

    def _come_to_an_end(self, worker: SteppedWorker) -> None:
        for step in [step for step in self.steps.stopped if step.owner is worker]:
            self.steps.go_on(step, END)

    def _schedule(
        self, worker: SteppedWorker, act: Callable[[SteppedWorker], Any], until: Until
    ) -> None:
        if act.__name__ not in BESIDE and not self._is_free(worker):
            return
        before = self.before
        step = self.steps.begin(act.__name__, partial(act, worker), until, owner=worker)
        if step.was_alone:
            an_early_answer_saves_the_request(before, self.before)

    @move(
        9,
        pick=PICKS,
        ending=st.sampled_from(ENDINGS),
        decision=st.sampled_from(DECISIONS),
        is_saved=st.booleans(),
        until=UNTIL,
    )
    def finish(
        self, pick: int, ending: Ending, decision: Ending, is_saved: bool, until: Until
    ) -> None:
        """Run the code of one claim; also beside what the worker's scheduler does."""
        everybody = [*self.workers, *self.ghosts]
        hands = [(worker, claim) for worker in everybody for claim in worker.claims]
        if not hands:
            self._schedule(self.workers[0], SteppedWorker.run_pass, until)
            return
        worker, claim = picked(hands, pick)
        run = partial(worker.finish, claim, ending, decision)
        if is_saved:
            run = partial(worker.finish_and_save, claim, ending, decision)
        self.steps.begin(run.func.__name__, run, until, owner=worker)

    @move(
        3,
        pick=PICKS,
        seat=SEATS,
        is_answered=st.sampled_from([False, False, True]),
        ending=st.sampled_from([return_value, usual]),
        until=st.one_of(st.just(END), UNTIL),
    )
    def hang(self, pick: int, seat: int, is_answered: bool, ending: Ending, until: Until) -> None:
        """Handlers execute for too long; beside them, and as they end, their jobs run again."""
        worker = self.workers[self._busy(seat)]
        self._request(worker, pick, is_answered)
        hanging = [claim for claim in worker.claims if claim.phase is Phase.REQUEST]
        self.pass_time(61, is_noticed=False, until=END)
        self._schedule(worker, SteppedWorker.try_overdue_again, until)
        for claim in hanging:
            run = partial(worker.finish_and_save, claim, ending, retry_at_once)
            self.steps.begin("finish_and_save", run, END, owner=worker)

    @move(3, seat=SEATS, is_killed=st.booleans(), is_noticed=st.booleans(), until=UNTIL)
    def crash(self, seat: int, is_killed: bool, is_noticed: bool, until: Until) -> None:
        """One that was only stopped still has what it has, also its locks."""
        seat = self._busy(seat)
        worker = self.workers[seat]
        beat([worker], MONDAY_NOON - A_LONG_TIME)
        if is_killed:
            self.steps.kill(worker)
        else:
            self.ghosts.append(worker)
        self.workers[seat] = SteppedWorker(self.code, self.issued)
        if is_noticed:
            self.keep_up(recovery.recover_lost, until)

    @move(2, pick=PICKS, seat=SEATS, is_answered=st.booleans(), is_killed=st.booleans())
    def crash_at_work(self, pick: int, seat: int, is_answered: bool, is_killed: bool) -> None:
        self._request(self.workers[seat], pick, is_answered)
        self.crash(seat, is_killed, is_noticed=True, until=END)

    def _request(self, worker: SteppedWorker, pick: int, is_answered: bool) -> None:
        """Let a request be in flight; it may be answered while its handler executes."""
        self._come_to_an_end(worker)
        self._enqueue(picked(self.types, pick), [{"timeout": 5}])
        self._schedule(worker, SteppedWorker.run_pass, END)
        requests = (claim.job for claim in worker.claims if claim.phase is Phase.REQUEST)
        job = next((job for job in requests if job.job_key != NONE), None)
        if is_answered and job is not None:
            name, key = job.job_type.name, job.job_key
            self.steps.begin("answer", lambda: hipq.complete(name, key, "yes"), END)

    def _busy(self, seat: int) -> int:
        """Return this seat or, if its worker has nothing in flight, the other one."""
        return seat if self.workers[seat].claims else 1 - seat

    @move(2, pick=PICKS, until=UNTIL)
    def come_back(self, pick: int, until: Until) -> None:
        """A worker that was only stopped saves what it has."""
        if self.ghosts:
            self._schedule(picked(self.ghosts, pick), SteppedWorker.save, until)

    # Time

    @move(3, seconds=st.sampled_from([6, 20, 61, 1, 3_600]), is_noticed=st.booleans(), until=UNTIL)
    def pass_time(self, seconds: int, is_noticed: bool, until: Until) -> None:
        """The workers send their heartbeats."""
        self.traveller.shift(seconds)
        beat(self.workers, timezone.now())
        if is_noticed:
            self.keep_up(recovery.time_out_overdue, until)

    @move(3, duty=DUTIES, until=UNTIL)
    def keep_up(self, duty: Callable[[InstanceSettings], int], until: Until) -> None:
        """Do what time and crashes make necessary."""
        self.steps.begin(duty.__name__, partial(duty, self.config), until)
