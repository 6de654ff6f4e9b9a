"""The whole life of jobs, in any order of steps, on real connections at the same time.

Workers, partners, operators and callers each have a transaction open, or wait for each other's
locks, while others go on; a step can be stopped before any of its statements, and crash there. It
searches for as many examples as `HIPQ_TEST_EXAMPLES` says, which takes longer than a suite may.
"""

from __future__ import annotations

import logging
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

import pytest
import time_machine
from django.core.management.color import no_style
from django.db import connection, transaction
from django.utils import timezone
from hypothesis import HealthCheck, Phase
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)
from pytest_django import Settings

import hipq_django as hipq
from hipq_django import answers, catalog, clock, inbox, recovery, retention, scheduler
from hipq_django.answers import answer_callback
from hipq_django.callbacks import Token
from hipq_django.conf import InstanceSettings, get_instance
from hipq_django.database import locked
from hipq_django.exceptions import DuplicateJobKeyError, InvalidAnswerError, InvalidJobError
from hipq_django.executor import execute
from hipq_django.models import Answer, Attempt, Job, Queue, Worker
from hipq_django.parts import UNNAMED, is_wanted
from hipq_django.payloads import NONE
from hipq_django.results import Claim
from hipq_django.states import WAITING, Outcome, State, Work
from hipq_django.testing import run_due_jobs
from tests.concurrency.actors import COMMIT, END, Actors, Until
from tests.concurrency.invariants import Snapshot, check_step
from tests.concurrency.scripts import (
    DECISIONS,
    ENDINGS,
    FREE,
    NARROW,
    PARTS,
    TYPES,
    WAITS,
    Ending,
    Scripted,
    give_up,
    retry_at_once,
    return_value,
    usual,
    wait,
)
from tests.concurrency.steps import Step, Steps
from tests.declaring import Declare
from tests.hand_worker import HandWorker
from tests.integration.conftest import MONDAY_NOON

EXAMPLES = int(os.environ.get("HIPQ_TEST_EXAMPLES", "0"))

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.postgres,
    pytest.mark.skipif(not EXAMPLES, reason="a search: HIPQ_TEST_EXAMPLES=300 says how long"),
]

STEPS = 50
PHASES = [Phase.reuse, Phase.generate, Phase.shrink]
"""Not to explain: that takes as long as all the others."""
ACTORS = 4
LIMIT = 3
ROUNDS = 200
MAX_LIVE_JOBS = 6
MAX_MESSAGES = 3
LIVE = set(State) - {State.FINAL}
BESIDE = ("finish", "finish_and_save", "save")
"""What a worker does in other threads, beside its scheduler."""
A_LONG_TIME = timedelta(hours=2)

T = TypeVar("T")

Kind, Status = Answer.Kind, Answer.Status


class SteppedWorker(HandWorker):
    """A worker whose claims end one by one."""

    def __init__(self, code: Scripted, issued: set[tuple[int, int, Work]]) -> None:
        super().__init__(threads=3, ahead=2)
        self.is_sure = True
        """Whether it knows of all that the database says is in its hands."""
        self._script = code.script
        self._issued = issued

    def start(self, claims: Sequence[Claim]) -> None:
        """Keep the claims; none may have been given out before."""
        for claim in claims:
            issue = (claim.id, claim.attempt, claim.work)
            assert claim.work is Work.DECISION or issue not in self._issued, f"twice: {issue}"
            self._issued.add(issue)
        super().start(claims)

    def finish(self, claim: Claim, ending: Ending, decision: Ending) -> None:
        """Run the code of one claim; the next pass or `save` writes the result."""
        if claim not in self.claims:
            return  # another step was quicker
        self.claims.remove(claim)
        self._script.ending, self._script.decision = ending, decision
        if ending is usual:
            self._script.ending = _usual(claim)
        result = execute(claim)
        self._results.append(result)  # to the list of now: that of before may have been taken

    def finish_and_save(self, claim: Claim, ending: Ending, decision: Ending) -> None:
        """Do both at once."""
        self.finish(claim, ending, decision)
        self.save()

    def reclaim(self) -> None:
        """Put back what is in these hands without their knowing."""
        self.scheduler.reclaim()
        self.is_sure = True

    def work(self) -> list[Job]:
        """Claim, run and save; every request waits for its answer."""
        claimed = self.run_pass()
        while self.claims:
            self.finish(self.claims[0], usual, retry_at_once)
        self.save()
        return claimed


SEATS = st.sampled_from([0, 1])
PICKS = st.integers(0, 11)
"""Which of those that there are just then: so what is drawn never depends on what happened."""
KEYS = st.sampled_from(["key-0", "key-1", "key-9"])
PAYLOADS = st.sampled_from(["yes", "no"])
MESSAGE_IDS = st.sampled_from([None, None, "message-1", "message-2"])
KINDS = st.sampled_from([Kind.RESPONSE, Kind.RESPONSE, Kind.ERROR])
NAMES = st.sampled_from([*PARTS, None])
MESSAGES = st.tuples(PICKS, KEYS, KINDS, PAYLOADS, NAMES, MESSAGE_IDS)
UNTIL: st.SearchStrategy[Until] = st.sampled_from([END, END, END, END, COMMIT, COMMIT, 1, 2, 4, 7])
DUTIES = st.sampled_from(
    [
        recovery.time_out_overdue,
        recovery.match_early,
        recovery.recover_lost,
        recovery.expire_early,
    ]
)
OPTIONS = st.fixed_dictionaries(
    {
        "throttle_factor": st.sampled_from([1, 0, 2, LIMIT + 2]),
        "priority": st.sampled_from([100, 1]),
        "timeout": st.sampled_from([60, 5]),
        "time_windows": st.sampled_from([[], [], [], ["13:00-15:00"]]),
    }
)


MOVES: list[st.SearchStrategy[tuple[str, dict[str, Any]]]] = []
Method = TypeVar("Method", bound=Callable[..., None])


def move(weight: int = 1, **values: st.SearchStrategy[Any]) -> Callable[[Method], Method]:
    """Declare what may happen next, and how often."""

    def declare(method: Method) -> Method:
        chosen = st.tuples(st.just(method.__name__), st.fixed_dictionaries(values))
        MOVES.extend([chosen] * weight)
        return method

    return declare


class JobLife(RuleBasedStateMachine):
    """Steps of callers, workers, partners, operators and time, which may overlap."""

    def __init__(self, code: Scripted, actors: Actors, traveller: time_machine.Traveller) -> None:
        super().__init__()
        _empty_tables()
        code.forget()
        traveller.move_to(MONDAY_NOON)
        self.code, self.actors, self.traveller = code, actors, traveller
        self.config = get_instance("default")
        self.steps = Steps(actors, self._note, self._check)
        self.issued: set[tuple[int, int, Work]] = set()
        self.workers = [SteppedWorker(code, self.issued) for _ in range(2)]
        self.ghosts: list[SteppedWorker] = []
        self.types: list[str] = []
        self.answered_by_url: dict[Token, tuple[str, Any]] = {}
        # Answers of which their senders know that they are stored, and those that were seen; jobs
        # whose response a worker has had in hand.
        self.stored, self.seen, self.taken_up = set[int](), set[int](), set[int]()
        self.unsure = 0
        """How many more may be stored, because their senders lost the connection."""
        self.before, self.commits = Snapshot.take(), actors.commits

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

    # How steps go on, and end

    @move(4, pick=PICKS, until=UNTIL)
    def go_on(self, pick: int, until: Until) -> None:
        if stopped := self.steps.stopped:
            self.steps.go_on(_picked(stopped, pick), until)

    @move(pick=PICKS, is_committed=st.booleans())
    def break_connection(self, pick: int, is_committed: bool) -> None:
        """At once, or after the next commit, of which its client does not learn."""
        steps = self.steps.stopped if is_committed else list(self.steps)
        if not steps:
            return
        step = _picked(steps, pick)
        if isinstance(step.owner, SteppedWorker):
            step.owner.is_sure = False
        if is_committed:
            self.unsure += MAX_MESSAGES
            self.steps.lose_confirmation(step)
        else:
            self.steps.cut(step)

    def _note(self, result: Any) -> None:
        found = result if isinstance(result, list) else [result]
        self.stored |= {answer.pk for answer in found if isinstance(answer, Answer)}

    # Callers

    @move(
        2,
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
        job_type = _picked(self.types, pick)
        taken = _live(job_type, key)
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

    # Workers

    @move(
        7,
        seat=SEATS,
        act=st.sampled_from(
            [SteppedWorker.run_pass, SteppedWorker.save, SteppedWorker.work, SteppedWorker.reclaim]
        ),
        until=UNTIL,
    )
    def schedule(self, seat: int, act: Callable[[SteppedWorker], Any], until: Until) -> None:
        self._schedule(self.workers[seat], act, until)

    def _schedule(
        self, worker: SteppedWorker, act: Callable[[SteppedWorker], Any], until: Until
    ) -> None:
        if act.__name__ in BESIDE or self._is_free(worker):
            self.steps.begin(act.__name__, partial(act, worker), until, owner=worker)

    def _is_free(self, worker: SteppedWorker) -> bool:
        """Whether its scheduler is in no step; its handlers and its writer may be."""
        return all(step.owner is not worker or step.name in BESIDE for step in self.steps)

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
        worker, claim = _picked(hands, pick)
        run = partial(worker.finish, claim, ending, decision)
        if is_saved:
            run = partial(worker.finish_and_save, claim, ending, decision)
        self.steps.begin(run.func.__name__, run, until, owner=worker)

    @move(seat=SEATS, is_killed=st.booleans())
    def crash(self, seat: int, is_killed: bool) -> None:
        """Nobody knows yet; one that was only stopped still has what it has, also its locks."""
        worker = self.workers[seat]
        _beat([worker], MONDAY_NOON - A_LONG_TIME)
        if is_killed:
            self.steps.kill(worker)
        else:
            self.ghosts.append(worker)
        self.workers[seat] = SteppedWorker(self.code, self.issued)

    @move(pick=PICKS, until=UNTIL)
    def come_back(self, pick: int, until: Until) -> None:
        """A worker that was only stopped saves what it has."""
        if self.ghosts:
            self._schedule(_picked(self.ghosts, pick), SteppedWorker.save, until)

    # Time

    @move(2, seconds=st.sampled_from([6, 20, 61, 1, 3_600]))
    def pass_time(self, seconds: int) -> None:
        """The workers send their heartbeats."""
        self.traveller.shift(seconds)
        _beat(self.workers, timezone.now())

    @move(3, duty=DUTIES, until=UNTIL)
    def keep_up(self, duty: Callable[[InstanceSettings], int], until: Until) -> None:
        """Do what time and crashes make necessary."""
        self.steps.begin(duty.__name__, partial(duty, self.config), until)

    # Partners

    @move(6, message=MESSAGES, until=UNTIL)
    def answer_by_key(self, message: tuple[Any, ...], until: Until) -> None:
        pick, key, kind, payload, wanted, message_id = message
        name, key, part = self._target(pick, key, wanted)
        live = _live(name, key)
        known = Answer.objects.filter(job_type=name, message_id=message_id or "").first()
        send = hipq.complete if kind == Kind.RESPONSE else hipq.fail
        step = self.steps.begin(
            "answer", lambda: send(name, key, payload, message_id=message_id, part=part), until
        )
        if step.was_alone and known:
            assert step.result == known
        elif step.was_alone and live and _awaits(live, kind):
            self._check_first(step.result, live)

    def _target(self, pick: int, key: str, part: str | None) -> tuple[str, str, str | None]:
        """Return the type, key and part of an answer: mostly to a job whose handler executes."""
        keyed = [job for job in self.before.in_state(*LIVE) if job["job_key"] != NONE]
        keyed = [job for job in keyed if job["work"] == Work.REQUEST] * 3 + keyed
        if pick % 4 and keyed:
            job = _picked(keyed, pick)
            name, key = job["type_name"], job["job_key"]
        else:
            name = _picked(self.types, pick)
        return name, key, part if name.startswith("parts") else None

    def _check_first(self, answer: Answer, job: Job) -> None:
        name = job.job_type.name
        if name in WAITS:
            self._check_first_part(answer, job)
            return
        if job.expects:  # its handler waits for a part, which this answer does not name
            return
        assert answer.status == Status.ACCEPTED
        job.refresh_from_db()
        if "on_response" in TYPES[name]:
            assert job.answered
        else:
            assert (job.outcome, job.result) == (Outcome.SUCCEEDED, answer.payload)

    def _check_first_part(self, answer: Answer, job: Job) -> None:
        is_first = not job.answers.exclude(pk=answer.pk).exists()
        if is_first and answer.part and is_wanted(job.expects or [answer.part], answer.part):
            assert answer.status in (Status.ACCEPTED, Status.EARLY)

    @move(2, messages=st.lists(MESSAGES, min_size=2, max_size=MAX_MESSAGES), until=UNTIL)
    def answer_many(self, messages: list[tuple[Any, ...]], until: Until) -> None:
        new = []
        for pick, key, kind, payload, wanted, message_id in messages:
            name, target, part = self._target(pick, key, wanted)
            said = {"response" if kind == Kind.RESPONSE else "error": payload}
            new.append(hipq.NewAnswer(name, target, **said, message_id=message_id, part=part))
        self.steps.begin("answers", lambda: hipq.receive_many(new), until)

    @move(2, pick=PICKS, kind=KINDS, payload=PAYLOADS, part=NAMES, until=UNTIL)
    def answer_by_url(
        self, pick: int, kind: str, payload: str, part: str | None, until: Until
    ) -> None:
        if not self.code.sent:
            return
        pk, attempt = _picked(sorted(self.code.sent), pick)
        job = Job.objects.select_related("job_type").filter(pk=pk).first()
        has_parts = job is not None and job.job_type.name.startswith("parts")
        token = Token("default", pk, attempt, part if part and has_parts else UNNAMED)
        is_open = job is not None and _is_open(job)
        step = self.steps.begin("callback", lambda: answer_callback(token, kind, payload), until)
        if not step.was_alone:
            return
        answer = step.result
        if job and (before := self.answered_by_url.get(token)):
            assert answer.status in (Status.DUPLICATE, Status.LATE)
            assert answer.status == Status.DUPLICATE or before != (kind, payload)
        elif job and is_open and kind == Kind.RESPONSE:
            self._check_first(answer, job)
        if answer.status == Status.ACCEPTED:
            self.answered_by_url[token] = (kind, payload)

    @move(
        pick=PICKS,
        key=KEYS,
        percent=st.sampled_from([0, 40, 100]),
        seconds=st.sampled_from([1, 30, 900]),
        until=UNTIL,
    )
    def report(self, pick: int, key: str, percent: int, seconds: int, until: Until) -> None:
        """The partner says how far it is and that it needs more time."""
        name, key, _ = self._target(pick, key, None)
        live = _live(name, key)
        step = self.steps.begin(
            "report",
            lambda: (hipq.progress(name, key, percent), hipq.extend(name, key, seconds)),
            until,
        )
        if not step.was_alone:
            return
        is_running = live is not None and live.state == State.RUNNING
        is_told, deadline = step.result
        assert is_told == is_running
        if live is None or not is_running:
            assert deadline is None
            return
        live.refresh_from_db()
        assert (live.progress, live.deadline) == (percent, deadline)
        assert live.deadline <= live.start_time + timedelta(seconds=10 * live.timeout)

    # Operators

    @move(pick=PICKS, other=PICKS, until=UNTIL)
    def match_by_hand(self, pick: int, other: int, until: Until) -> None:
        free = list(Answer.objects.filter(job=None).order_by("pk"))
        job = self._any_job(other)
        if not (free and job):
            return
        answer, pk = _picked(free, pick), job.pk
        reason = inbox.refusal(answer, job)
        step = self.steps.begin(
            "match", lambda: answers.assign(answer, pk), until, refusals=(InvalidAnswerError,)
        )
        if step.was_alone:
            assert bool(step.refusal) == bool(reason)
        if step.was_alone and not step.refusal:
            assert step.result.job == job
            assert step.result.status in (Status.ACCEPTED, Status.EARLY)

    def _any_job(self, pick: int) -> Job | None:
        if not self.before.jobs:
            return None
        pk = _picked(sorted(self.before.jobs), pick)
        return Job.objects.select_related("job_type").get(pk=pk)

    @move(
        2,
        pick=PICKS,
        verb=st.sampled_from([hipq.run_now, hipq.requeue, hipq.cancel]),
        until=UNTIL,
    )
    def operate(self, pick: int, verb: Callable[[Job], Job], until: Until) -> None:
        job = self._any_job(pick)
        if job is None:
            return
        is_allowed: dict[Callable[[Job], Job], bool] = {
            hipq.run_now: job.state in WAITING,
            hipq.requeue: job.is_final,
            hipq.cancel: not job.is_final,
        }
        holder = _live(job.job_type.name, job.job_key)
        step = self.steps.begin(
            verb.__name__,
            lambda: verb(job),
            until,
            refusals=(InvalidJobError, DuplicateJobKeyError),
        )
        if not step.was_alone:
            return
        if isinstance(step.refusal, DuplicateJobKeyError):
            assert step.refusal.job == holder
        else:
            assert bool(step.refusal) != is_allowed[verb]

    @move(until=UNTIL)
    def prune(self, until: Until) -> None:
        self.steps.begin("prune", lambda: retention.prune(self.config, days=0.0001), until)

    @move(
        name=st.sampled_from([FREE, NARROW]),
        limit=st.sampled_from([1, LIMIT, 2 * LIMIT]),
        is_paused=st.sampled_from([False] * 7 + [True]),
        until=UNTIL,
    )
    def change_queue(self, name: str, limit: int, is_paused: bool, until: Until) -> None:
        """A queue without a limit keeps none: who claims from it does not lock its row."""
        values = {"paused": is_paused} | ({"throttle_limit": limit} if name == NARROW else {})

        def change() -> None:
            with transaction.atomic():  # else it would be committed with whom it waits for
                Queue.objects.filter(name=name).update(**values)

        self.steps.begin("change queue", change, until)

    @rule(chosen=st.sampled_from(MOVES).flatmap(lambda values: values))
    def move(self, chosen: tuple[str, dict[str, Any]]) -> None:
        """One rule for all: Hypothesis would leave most rules out of each run, and little meets."""
        name, values = chosen
        getattr(self, name)(**values)

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
        self._check_results(after)
        self._check_no_response_is_lost(after)
        self.before = after

    def _check_hands(self, now: Snapshot) -> None:
        """What the database says is in a worker's hands is in its batch."""
        for worker in self.workers:
            if worker.is_sure and self._is_free(worker):
                rows = {pk for pk, job in now.jobs.items() if job["worker_id"] == worker.row.pk}
                assert rows <= worker.scheduler.batch.keys(), "a job in hand is not in the batch"

    def _check_results(self, now: Snapshot) -> None:
        for job in now.in_state(State.FINAL):
            if job["outcome"] == Outcome.SUCCEEDED:
                assert [job["result"]] == (now.response_to(job) or [{"done": job["id"]}]), job

    def _check_no_response_is_lost(self, now: Snapshot) -> None:
        self.taken_up |= {pk for pk, job in now.jobs.items() if job["work"] == Work.RESPONSE}
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
        waiting = Answer.objects.filter(status=Status.EARLY)
        assert not waiting.exists(), f"answers that wait for ever: {list(waiting.values())}"
        assert len(self.seen - self.stored) <= self.unsure, "an answer was stored twice"

    def _work_for_a_while(self) -> None:
        self.traveller.shift(timedelta(minutes=20))  # no window is shorter
        recovery.recover_lost(self.config)
        run_due_jobs()
        recovery.expire_early(self.config)
        self._check_rows()


def _usual(claim: Claim) -> Ending:
    return wait if claim.work is Work.REQUEST else return_value


def _picked(there: Sequence[T], pick: int) -> T:
    return there[pick % len(there)]


def _live(job_type: str, key: str | None) -> Job | None:
    if key is None or key == NONE:
        return None
    jobs = Job.objects.live().select_related("job_type")
    return jobs.filter(job_type__name=job_type, job_key=key).first()


def _awaits(job: Job, kind: str) -> bool:
    return kind == Kind.RESPONSE and job.state == State.RUNNING and not job.answered


def _is_open(job: Job) -> bool:
    settled = job.answers.filter(status__in=(Status.ACCEPTED, Status.DISCARDED))
    return not (job.is_final or job.answered or settled.exists())


def _beat(workers: Sequence[HandWorker], moment: datetime) -> None:
    """Write heartbeats; one whose row somebody holds has to wait until the next time."""
    with transaction.atomic():
        rows = Worker.objects.filter(pk__in=[worker.row.pk for worker in workers])
        held = {row.pk for row in locked(rows.order_by("pk"), skip_locked=True)}
        rows.filter(pk__in=held).update(heartbeat_time=moment)


def _empty_tables() -> None:
    tables = [model._meta.db_table for model in (Answer, Attempt, Job, Worker)]
    flush = connection.ops.sql_flush(no_style(), tables, reset_sequences=True)
    connection.ops.execute_sql_flush(flush)
    Queue.objects.update(throttle_limit=0, paused=False)
    Queue.objects.filter(name=NARROW).update(throttle_limit=LIMIT)


@pytest.fixture
def actors(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Actors]:
    """Connections whose statements depend on no clock but the test's, so that runs repeat."""
    monkeypatch.setattr(clock, "_measured_at", {"default": math.inf})
    monkeypatch.setattr(scheduler, "TYPES_SECONDS", math.inf)
    actors = Actors(1 if connection.vendor == "sqlite" else ACTORS)
    yield actors
    actors.close()


def test_any_order_of_steps_keeps_the_rules_and_ends_every_job(
    actors: Actors,
    declare: Declare,
    frozen_time: time_machine.Traveller,
    settings: Settings,
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings.HIPQ = {"default": {"NOTIFY": False}}
    caplog.set_level(logging.CRITICAL, "hipq_django")  # the steps that failed say more
    code = Scripted(declare)
    catalog.sync("default")
    run_state_machine_as_test(
        partial(JobLife, code, actors, frozen_time),  # type: ignore[arg-type]
        settings=hypothesis_settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            print_blob=True,
            phases=PHASES,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
