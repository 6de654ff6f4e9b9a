"""The rows and those who move them; what holds after every step, and that every job ends."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import time_machine
from django.core.management.color import no_style
from django.db import connection, transaction
from hypothesis.stateful import RuleBasedStateMachine

from hipq_django.answers.callback_urls import Token
from hipq_django.conf.instances import get_instance
from hipq_django.database.locks import locked
from hipq_django.domain.states import Outcome, Phase, State
from hipq_django.maintenance import early_answers, recovery
from hipq_django.models import Answer, Attempt, Job, Link, Queue, Step, Worker
from tests.invariants import Snapshot, check_step
from tests.job_life.actors import END, Actors
from tests.job_life.scripts import LIMIT, NARROW, Scripted, give_up, return_value
from tests.job_life.steps import Steps
from tests.job_life.worker import BESIDE, SteppedWorker
from tests.noon import MONDAY_NOON
from tests.running import run_due_jobs

ROUNDS = 200
LIVE = set(State) - {State.FINAL}
A_LONG_TIME = timedelta(hours=2)


class Life(RuleBasedStateMachine):
    """What all moves share."""

    def __init__(self, code: Scripted, actors: Actors, traveller: time_machine.Traveller) -> None:
        super().__init__()
        _empty_tables()
        code.forget()
        traveller.move_to(MONDAY_NOON)
        self.code, self.actors, self.traveller = code, actors, traveller
        self.config = get_instance("default")
        self.steps = Steps(actors, self._note, self._check)
        self.issued: set[tuple[int, int, Phase]] = set()
        self.workers = [SteppedWorker(code, self.issued) for _ in range(2)]
        self.ghosts: list[SteppedWorker] = []
        self.types: list[str] = []
        self.answered_by_url: dict[Token, tuple[str, Any]] = {}
        # Answers of which their senders know that they are stored, and those that were seen; jobs
        # whose response a worker has had in flight.
        self.stored, self.seen, self.taken_up = set[int](), set[int](), set[int]()
        self.unsure = 0
        """How many more may be stored, because their senders lost the connection."""
        self.before, self.commits = Snapshot.take(), actors.commits

    def _note(self, result: Any) -> None:
        found = result if isinstance(result, list) else [result]
        self.stored |= {answer.pk for answer in found if isinstance(answer, Answer)}

    def _is_free(self, worker: SteppedWorker) -> bool:
        """Whether its scheduler is in no step; its handlers and its writer may be."""
        return all(step.owner is not worker or step.name in BESIDE for step in self.steps)

    # What holds after every step

    def _check(self) -> None:
        if self.actors.commits != self.commits:
            self._check_rows()

    def _check_rows(self) -> None:
        self.commits = self.actors.commits
        after = Snapshot.take()
        check_step(self.before, after)
        self.seen |= after.answers.keys()
        assert self.stored <= self.seen, "an answer was confirmed and is not stored"
        self._check_hands(after)
        self._check_waiting(after)
        self._check_results(after)
        self._check_no_response_is_lost(after)
        self.before = after

    def _check_hands(self, now: Snapshot) -> None:
        """What the database says is in a worker's hands is in its batch."""
        for worker in self.workers:
            if worker.is_sure and self._is_free(worker):
                rows = {pk for pk, job in now.jobs.items() if job["worker_id"] == worker.row.pk}
                assert rows <= set(worker.batch.ids), "a job in flight is not in the batch"

    def _check_waiting(self, now: Snapshot) -> None:
        """A job waits for its answer only if the handler of this very attempt has said so."""
        for job in now.in_state(State.RUNNING):
            if job["worker_id"] is None and not job["has_pending_answer"]:
                assert (job["id"], job["attempt"]) in self.code.waiting, job

    def _check_results(self, now: Snapshot) -> None:
        for job in now.in_state(State.FINAL):
            if job["outcome"] == Outcome.SUCCEEDED:
                returned = {"done": job["id"], "attempt": job["attempt"]}
                assert [job["result"]] == (now.response_to(job) or [returned]), job

    def _check_no_response_is_lost(self, now: Snapshot) -> None:
        self.taken_up |= {pk for pk, job in now.jobs.items() if job["phase"] == Phase.RESPONSE}
        for job in now.in_state(State.FINAL):
            if job["outcome"] in (Outcome.FAILED, Outcome.TIMED_OUT) and now.response_to(job):
                assert job["id"] in self.taken_up, f"nobody looked at the response: {job}"

    # The end

    def teardown(self) -> None:
        try:
            if sys.exc_info()[0] is None:
                self._end_all_steps()
                self._run_to_the_end()
        finally:
            self.actors.kill_all()

    def _end_all_steps(self) -> None:
        for _ in range(ROUNDS):
            if not (stopped := self.steps.stopped):
                break
            self.steps.go_on(stopped[0], END)
        assert not list(self.steps), f"steps that never end: {list(self.steps)}"

    def _run_to_the_end(self) -> None:
        """Let time pass, with no one but fresh workers at work: every job ends."""
        Queue.objects.update(paused=False)
        Worker.objects.update(heartbeat_time=MONDAY_NOON - A_LONG_TIME)
        self.code.script.ending, self.code.script.decision = return_value, give_up
        self.workers = []
        for _ in range(ROUNDS):
            self._work_for_a_while()
            if not Job.objects.live().exists():
                break
        live = Job.objects.live()
        assert not live.exists(), f"jobs that never end: {list(live.values())}"
        connection.check_constraints()
        self.traveller.shift(self.config.answer_ttl_seconds)
        self._work_for_a_while()
        waiting = Answer.objects.filter(status=Answer.Status.EARLY)
        assert not waiting.exists(), f"answers that wait for ever: {list(waiting.values())}"
        assert len(self.seen - self.stored) <= self.unsure, "an answer was stored twice"

    def _work_for_a_while(self) -> None:
        self.traveller.shift(timedelta(minutes=20))  # no window is shorter
        recovery.recover_lost(self.config)
        run_due_jobs()
        early_answers.expire_early(self.config)
        self._check_rows()


def beat(workers: Sequence[SteppedWorker], moment: datetime) -> None:
    """Write heartbeats; one whose row somebody holds has to wait until the next time."""
    with transaction.atomic():
        rows = Worker.objects.filter(pk__in=[worker.row.pk for worker in workers])
        held = {row.pk for row in locked(rows.order_by("pk"), skip_locked=True)}
        rows.filter(pk__in=held).update(heartbeat_time=moment)


def _empty_tables() -> None:
    tables = [model._meta.db_table for model in (Answer, Attempt, Link, Step, Job, Worker)]
    flush = connection.ops.sql_flush(no_style(), tables, reset_sequences=True)
    connection.ops.execute_sql_flush(flush)
    Queue.objects.update(throttle_limit=0, paused=False)
    Queue.objects.filter(name=NARROW).update(throttle_limit=LIMIT)
