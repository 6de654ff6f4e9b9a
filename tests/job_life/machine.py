"""The life of jobs as a state machine of Hypothesis."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import time_machine
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule, run_state_machine_as_test

import hipq_django as hipq
from tests.job_life.actors import Actors, Until
from tests.job_life.callers import Callers
from tests.job_life.moves import MAX_MESSAGES, MOVES, OPTIONS, PICKS, UNTIL, move, picked
from tests.job_life.operators import Operators
from tests.job_life.partners import Partners
from tests.job_life.scripts import TYPES, Scripted
from tests.job_life.worker import SteppedWorker
from tests.job_life.workers import Workers

SEARCHED = int(os.environ.get("HIPQ_TEST_EXAMPLES", "0"))
STEPS = 50
PHASES = [Phase.reuse, Phase.generate, Phase.shrink]
"""Not to explain: that takes as long as all the others."""


class JobLife(Callers, Workers, Partners, Operators):
    """Steps of callers, workers, partners, operators and time, which may overlap."""

    @initialize(
        names=st.lists(st.sampled_from(list(TYPES)), min_size=1, max_size=2, unique=True),
        options=st.lists(OPTIONS, min_size=2, max_size=3),
        is_claimed=st.booleans(),
    )
    def enqueue_some(
        self, names: list[str], options: list[dict[str, Any]], is_claimed: bool
    ) -> None:
        """Few types at a time, so that steps meet, and jobs that are due at once."""
        self.types = names
        hipq.enqueue_many(
            hipq.NewJob(names[0], job_key=f"key-{index}", **values)
            for index, values in enumerate(options)
        )
        if is_claimed:
            self.workers[0].run_pass()
        self._check_rows()

    @move(4, pick=PICKS, until=UNTIL)
    def go_on(self, pick: int, until: Until) -> None:
        if stopped := self.steps.stopped:
            self.steps.go_on(picked(stopped, pick), until)

    @move(pick=PICKS, is_committed=st.booleans())
    def break_connection(self, pick: int, is_committed: bool) -> None:
        """At once, or after the next commit, of which its client does not learn."""
        steps = self.steps.stopped if is_committed else list(self.steps)
        if not steps:
            return
        step = picked(steps, pick)
        if isinstance(step.owner, SteppedWorker):
            step.owner.is_sure = False
        if is_committed:
            self.unsure += MAX_MESSAGES
            self.steps.lose_confirmation(step)
        else:
            self.steps.cut(step)

    @rule(chosen=st.sampled_from(MOVES).flatmap(lambda values: values))
    def move(self, chosen: tuple[str, dict[str, Any]]) -> None:
        """One rule for all: Hypothesis would leave most rules out of each run, and little meets."""
        name, values = chosen
        getattr(self, name)(**values)


def run(
    code: Scripted, actors: Actors, traveller: time_machine.Traveller, *, examples: int
) -> None:
    """Run so many examples, always the same; or search, if told to, at random."""
    run_state_machine_as_test(
        partial(JobLife, code, actors, traveller),  # type: ignore[arg-type]
        settings=settings(
            max_examples=SEARCHED or examples,
            derandomize=not SEARCHED,
            stateful_step_count=STEPS,
            deadline=None,
            print_blob=True,
            phases=PHASES,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
