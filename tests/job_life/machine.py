"""The life of jobs as a state machine of Hypothesis."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, Phase, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

import hipq_django as hipq
from hipq_django.domain.states import NONE, State
from tests.job_life.actors import COMMIT, END, Until
from tests.job_life.callers import Callers
from tests.job_life.life import LIVE
from tests.job_life.moves import (
    MAX_LIVE_JOBS,
    MAX_MESSAGES,
    MOVES,
    OPTIONS,
    PICKS,
    UNTIL,
    live_job,
    move,
    picked,
)
from tests.job_life.operators import Operators
from tests.job_life.partners import Partners
from tests.job_life.scripts import NARROW, TYPES
from tests.job_life.worker import SteppedWorker
from tests.job_life.workers import Workers

SEARCHED = int(os.environ.get("HIPQ_TEST_EXAMPLES", "0"))
STEPS = 50
FEW = 2
"""The examples of the commit suite, of which the first is the simplest that there is."""
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

    # Where several meet who seldom would by chance

    @move(2, pick=PICKS)
    def claim_what_is_answered(self, pick: int) -> None:
        """The answer is there before the job."""
        self._end_all_steps()
        job_type, key = picked(self.types, pick), f"early-{pick}"
        if len(self.before.in_state(*LIVE)) >= MAX_LIVE_JOBS or live_job(job_type, key):
            return
        self.steps.begin("answer", lambda: hipq.complete(job_type, key, "yes"), END)
        self.steps.begin("enqueue", lambda: hipq.enqueue(job_type, job_key=key), END)
        self.schedule(0, SteppedWorker.run_pass, END)

    @move(
        2,
        pick=PICKS,
        options=st.lists(OPTIONS, min_size=4, max_size=4),
        until=st.one_of(st.just(COMMIT), UNTIL),
    )
    def compete(self, pick: int, options: list[dict[str, Any]], until: Until) -> None:
        """More jobs come, and another worker, while the first one is still claiming."""
        self._end_all_steps()
        narrow = [name for name in self.types if TYPES[name]["queue"] == NARROW]
        job_type = picked(narrow or self.types, pick)
        self.change_queue(NARROW, self._load() + 2, is_paused=False, until=END)
        self._enqueue(job_type, options[:2])
        self.schedule(0, SteppedWorker.run_pass, until)
        self._enqueue(job_type, options[2:])
        self.schedule(1, SteppedWorker.run_pass, END)

    def _load(self) -> int:
        queues = [pk for pk, queue in self.before.queues.items() if queue.name == NARROW]
        return sum(int(self.before.load(pk)) for pk in queues)

    @move(2, pick=PICKS, until=UNTIL)
    def answer_just_in_time(self, pick: int, until: Until) -> None:
        """The response is there before the deadline, and nobody takes it up until later."""
        waiting = [job for job in self.before.in_state(State.RUNNING) if not job["worker_id"]]
        waiting = [job for job in waiting if job["job_key"] != NONE]
        if waiting:
            job = picked(waiting, pick)
            name, key = job["type_name"], job["job_key"]
            self.steps.begin("answer", lambda: hipq.complete(name, key, "yes"), END)
            self.pass_time(61, is_noticed=True, until=until)

    @rule(chosen=st.sampled_from(MOVES).flatmap(lambda values: values))
    def move(self, chosen: tuple[str, dict[str, Any]]) -> None:
        """One rule for all: Hypothesis would leave most rules out of each run, and little meets."""
        name, values = chosen
        getattr(self, name)(**values)


def run(life: Callable[[], RuleBasedStateMachine], *, examples: int) -> None:
    """Run so many examples, always the same, but few of them in the commit suite; or search, if
    told to, at random.
    """
    is_whole = settings.get_current_profile_name() == "nightly"
    run_state_machine_as_test(
        life,  # type: ignore[arg-type]  # it makes a machine
        settings=settings(
            max_examples=SEARCHED or (examples if is_whole else FEW),
            derandomize=not SEARCHED,
            stateful_step_count=STEPS,
            deadline=None,
            print_blob=True,
            phases=PHASES,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
