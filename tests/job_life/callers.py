"""What callers do: they enqueue jobs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.utils import timezone
from hypothesis import strategies as st

import hipq_django as hipq
from hipq_django.domain.states import Outcome, State
from hipq_django.exceptions import DuplicateJobKeyError
from hipq_django.models import Job
from tests.job_life.actors import Until
from tests.job_life.life import LIVE, Life
from tests.job_life.moves import KEYS, MAX_LIVE_JOBS, OPTIONS, PICKS, UNTIL, live_job, move, picked
from tests.job_life.steps import Step


class Callers(Life):
    """Those whose transactions jobs begin in."""

    @move(
        3,
        pick=PICKS,
        key=st.one_of(KEYS, st.none()),
        on_conflict=st.sampled_from(["raise", "return", "replace"]),
        delay=st.sampled_from([0, 0, 30]),
        options=OPTIONS,
        until=UNTIL,
    )
    def enqueue(
        self,
        pick: int,
        key: str | None,
        on_conflict: str,
        delay: int,
        options: dict[str, Any],
        until: Until,
    ) -> None:
        if len(self.before.in_state(*LIVE)) >= MAX_LIVE_JOBS:
            return
        job_type = picked(self.types, pick)
        taken = live_job(job_type, key)
        values = {"on_conflict": on_conflict, "job_key": key, **options}
        values["scheduled_run_time"] = timezone.now() + timedelta(seconds=delay)
        step = self.steps.begin(
            "enqueue",
            lambda: hipq.enqueue(job_type, **values),
            until,
            refusals=(DuplicateJobKeyError,),
        )
        if step.was_alone:
            self._check_conflict(step, on_conflict, taken)

    def _check_conflict(self, step: Step, on_conflict: str, taken: Job | None) -> None:
        if step.refusal:
            assert isinstance(step.refusal, DuplicateJobKeyError)
            assert taken == step.refusal.job
            assert on_conflict == "raise" or step.refusal.job.state == State.RUNNING
        elif taken and on_conflict == "return":
            assert step.result == taken
        elif taken:
            assert on_conflict == "replace"
            taken.refresh_from_db()
            assert taken.outcome == Outcome.CANCELLED
            assert (step.result.state, step.result.attempt) == (State.INITIAL, 0)
