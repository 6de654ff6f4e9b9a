"""The whole life of jobs, in any order of steps, against the real database.

Two workers are moved by hand, so that an answer, a timeout, a crash or an operator comes between
any two of their steps. `HIPQ_TEST_EXAMPLES=2000` searches longer than the suite has time for.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
import time_machine
from django.db import connection, transaction
from django.utils import timezone
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    MultipleResults,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

import hipq_django as hipq
from hipq_django import answers, inbox, recovery, retention
from hipq_django.answers import answer_callback
from hipq_django.callbacks import Token
from hipq_django.conf import get_instance
from hipq_django.exceptions import DuplicateJobKeyError, InvalidAnswerError, InvalidJobError
from hipq_django.executor import execute
from hipq_django.models import Answer, Job, Queue, Worker
from hipq_django.payloads import NONE
from hipq_django.results import Claim
from hipq_django.states import WAITING, Outcome, State, Work
from hipq_django.testing import run_due_jobs
from tests.declaring import Declare
from tests.hand_worker import HandWorker
from tests.integration.conftest import MONDAY_NOON
from tests.invariants import Snapshot, check_step

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

EXAMPLES = int(os.environ.get("HIPQ_TEST_EXAMPLES", "30"))
STEPS = 50
LIMIT = 3
ROUNDS = 200
MAX_LIVE_JOBS = 6
LIVE = set(State) - {State.FINAL}
A_LONG_TIME = timedelta(hours=2)

Kind, Status = Answer.Kind, Answer.Status


# How a handler may end


def return_value(job: Job) -> Any:
    return {"done": job.pk}


def wait(job: Job) -> Any:
    del job
    return hipq.WAIT


def raise_error(job: Job) -> Any:
    del job
    raise OSError("the partner is down")


def snooze(job: Job) -> Any:
    del job
    raise hipq.Snooze(30)


def return_no_json(job: Job) -> Any:
    return {job}


def scribble_and_snooze(job: Job) -> Any:
    """The copy is the handler's own: what it writes there is nobody's business."""
    job.priority, job.time_windows, job.job_key = 1, ["01:00-02:00"], "scribble"
    raise hipq.Snooze(30)


def set_a_key_and_wait(job: Job) -> Any:
    job.set_key("key-9")
    return hipq.WAIT


ENDINGS = (
    return_value,
    wait,
    raise_error,
    snooze,
    return_no_json,
    scribble_and_snooze,
    set_a_key_and_wait,
)


# What a retry handler may do


def retry_at_once(job: Job) -> Any:
    del job
    return hipq.RetryIn(0)


def send_again(job: Job) -> Any:
    del job
    return hipq.RetryIn(0, resend=True)


def retry_later(job: Job) -> Any:
    del job
    return hipq.RetryAt(MONDAY_NOON + timedelta(minutes=2))


def give_up(job: Job) -> Any:
    del job
    return hipq.GiveUp()


def decide_nothing(job: Job) -> Any:
    del job


def decide_nonsense(job: Job) -> Any:
    del job
    return "later"


def change_and_retry(job: Job) -> Any:
    job.job_data, job.priority, job.throttle_factor = {"changed": True}, 7, Decimal(2)
    return hipq.RetryIn(5)


def take_a_key_and_retry(job: Job) -> Any:
    job.job_key = "key-9"
    return hipq.RetryIn(0)


DECISIONS = (
    retry_at_once,
    send_again,
    retry_later,
    give_up,
    decide_nothing,
    decide_nonsense,
    raise_error,
    change_and_retry,
    take_a_key_and_retry,
)


@dataclass
class Script:
    """What the next handler does; the machine writes it just before."""

    ending: Callable[[Job], Any] = return_value
    decision: Callable[[Job], Any] = give_up
    responded: set[int] = field(default_factory=set)

    def request(self, job: Job) -> Any:
        """Stand for the code of every job type."""
        return self.ending(job)

    def response(self, job: Job, response: Any) -> Any:
        """Stand for every response handler."""
        self.responded.add(job.pk)
        value = self.ending(job)
        return response if isinstance(value, dict) else value

    def retry(self, job: Job) -> Any:
        """Stand for every retry handler."""
        return self.decision(job)


FREE, NARROW = "free", "narrow"
TYPES: dict[str, dict[str, Any]] = {
    "simple": {"queue": FREE},
    "persistent": {"queue": NARROW, "retry": hipq.Fixed(0, max_attempts=4)},
    "decided": {"queue": FREE, "on_error": True},
    "handled": {"queue": NARROW, "on_response": True},
    "handled_once": {"queue": FREE, "on_response": True, "retry": hipq.Never()},
    "handled_persistently": {
        "queue": FREE,
        "on_response": True,
        "retry": hipq.Fixed(0, max_attempts=4),
    },
    "handled_and_decided": {"queue": NARROW, "on_response": True, "on_error": True},
}


def declare_types(declare: Declare, script: Script) -> None:
    """Declare all job types with the script as their code."""
    for name, options in TYPES.items():
        plain = {key: value for key, value in options.items() if not key.startswith("on_")}
        declared = declare(name, **plain)(script.request)
        if "on_response" in options:
            declared.on_response(script.response)
        if "on_error" in options:
            declared.on_error(script.retry)


class SteppedWorker(HandWorker):
    """A worker whose claims end one by one."""

    def finish(self, claim: Claim) -> None:
        """Run the code of one claim; the next pass or `save` writes the result."""
        self.claims.remove(claim)
        self._results.append(execute(claim))

    def fall_silent(self) -> None:
        """Send no heartbeat any more; what is in hand stays there."""
        Worker.objects.filter(pk=self.row.pk).update(heartbeat_time=MONDAY_NOON - A_LONG_TIME)


@dataclass(frozen=True)
class Held:
    """A claim and who has it in hand."""

    worker: SteppedWorker
    claim: Claim

    def __repr__(self) -> str:
        return f"{self.claim.work.name} of job {self.claim.id}, attempt {self.claim.attempt}"


SEATS = st.sampled_from([0, 1])
KEYS = st.sampled_from(["key-0", "key-1", "key-9", None])
PAYLOADS = st.sampled_from(["yes", "no"])
MESSAGE_IDS = st.sampled_from([None, None, "message-1", "message-2"])
KINDS = st.sampled_from([Kind.RESPONSE, Kind.ERROR])
OPTIONS = st.fixed_dictionaries(
    {
        "throttle_factor": st.sampled_from([1, 0, 2, LIMIT + 2]),
        "priority": st.sampled_from([100, 1]),
        "timeout": st.sampled_from([60, 5]),
        "time_windows": st.sampled_from([[], [], [], ["13:00-15:00"]]),
    }
)


class JobLife(RuleBasedStateMachine):
    """Steps of callers, workers, partners, operators and time."""

    types: Bundle[str] = Bundle("types")
    jobs: Bundle[int] = Bundle("jobs")
    held: Bundle[Held] = Bundle("held")

    def __init__(self, script: Script, traveller: time_machine.Traveller) -> None:
        super().__init__()
        self.transaction = transaction.atomic()
        self.transaction.__enter__()
        self.traveller = traveller
        self.traveller.move_to(MONDAY_NOON)
        self.script = script
        self.script.responded.clear()
        self.config = get_instance("default")
        Queue.objects.create(name=FREE)
        Queue.objects.create(name=NARROW, throttle_limit=LIMIT)
        self.workers = [SteppedWorker(threads=3, ahead=2) for _ in range(2)]
        self.ghosts: list[SteppedWorker] = []
        self.issued: set[tuple[int, int, Work]] = set()
        self.sent: set[tuple[int, int]] = set()
        self.answered_by_url: dict[tuple[int, int], tuple[str, Any]] = {}
        self.before = Snapshot.take()

    @initialize(
        target=types,
        names=st.lists(st.sampled_from(list(TYPES)), min_size=1, max_size=2, unique=True),
    )
    def choose_types(self, names: list[str]) -> MultipleResults[str]:
        """Few types at a time, so that steps meet."""
        return multiple(*names)

    @initialize(target=jobs, job_type=types, options=st.lists(OPTIONS, min_size=2, max_size=3))
    def enqueue_some(self, job_type: str, options: list[dict[str, Any]]) -> MultipleResults[int]:
        """Jobs that are due at once, so that there is something to do from the start."""
        new = [
            hipq.NewJob(job_type, job_key=f"key-{index}", **values)
            for index, values in enumerate(options)
        ]
        return multiple(*(job.pk for job in hipq.enqueue_many(new)))

    # Callers

    @precondition(lambda self: len(self.before.in_state(*LIVE)) < MAX_LIVE_JOBS)
    @rule(
        target=jobs,
        job_type=types,
        key=KEYS,
        on_conflict=st.sampled_from(["raise", "return", "replace"]),
        delay=st.sampled_from([0, 0, 30]),
        options=OPTIONS,
    )
    def enqueue(
        self, job_type: str, key: str | None, on_conflict: str, delay: int, options: dict[str, Any]
    ) -> int | MultipleResults[int]:
        taken = self._live(job_type, key)
        moment = timezone.now() + timedelta(seconds=delay)
        try:
            job = hipq.enqueue(
                job_type,
                job_key=key,
                on_conflict=on_conflict,
                scheduled_run_time=moment,
                **options,
            )
        except DuplicateJobKeyError as error:
            assert taken == error.job
            assert on_conflict == "raise" or taken.state == State.RUNNING
            return multiple()
        if taken:
            self._check_conflict(on_conflict, taken, job)
        return job.pk

    def _check_conflict(self, on_conflict: str, taken: Job, job: Job) -> None:
        assert on_conflict != "raise"
        if on_conflict == "return":
            assert job == taken
        else:
            taken.refresh_from_db()
            assert taken.outcome == Outcome.CANCELLED
            assert (job.state, job.attempt) == (State.INITIAL, 0)

    # Workers

    @rule(target=held, seat=SEATS)
    def run_pass(self, seat: int) -> MultipleResults[Held]:
        worker = self.workers[seat]
        return multiple(*(Held(worker, claim) for claim in self._claim(worker)))

    def _claim(self, worker: SteppedWorker) -> list[Claim]:
        known = len(worker.claims)
        worker.run_pass()
        claims = worker.claims[known:]
        for claim in claims:
            self._check_claim(claim, worker)
        return claims

    def _check_claim(self, claim: Claim, worker: SteppedWorker) -> None:
        row = Job.objects.get(pk=claim.id)
        assert (row.attempt, row.worker_id) == (claim.attempt, worker.row.pk)
        if claim.work is Work.DECISION:
            return
        issue = (claim.id, claim.attempt, claim.work)
        assert issue not in self.issued, f"claimed twice: {issue}"
        self.issued.add(issue)
        if claim.work is Work.REQUEST:
            accepted = row.answers.filter(kind=Kind.RESPONSE, status=Status.ACCEPTED)
            assert not accepted.exists(), "the partner is asked again what it answered"

    @rule(
        held=consumes(held),
        ending=st.sampled_from(ENDINGS),
        decision=st.sampled_from(DECISIONS),
        is_saved=st.sampled_from([True, True, False]),
    )
    def finish(
        self,
        held: Held,
        ending: Callable[[Job], Any],
        decision: Callable[[Job], Any],
        is_saved: bool,
    ) -> None:
        self._finish(held.worker, held.claim, ending, decision)
        if is_saved:
            held.worker.save()

    @rule(seat=SEATS, passes=st.sampled_from([3, 1]), decision=st.sampled_from(DECISIONS))
    def work(self, seat: int, passes: int, decision: Callable[[Job], Any]) -> None:
        """Claim, run and save, pass after pass; every request waits for its answer."""
        for _ in range(passes):
            self._work(self.workers[seat], decision)

    def _work(self, worker: SteppedWorker, decision: Callable[[Job], Any]) -> None:
        for claim in self._claim(worker):
            ending = wait if claim.work is Work.REQUEST else return_value
            self._finish(worker, claim, ending, decision)
        worker.save()

    def _finish(
        self,
        worker: SteppedWorker,
        claim: Claim,
        ending: Callable[[Job], Any],
        decision: Callable[[Job], Any],
    ) -> None:
        if claim.work is Work.REQUEST:
            self.sent.add((claim.id, claim.attempt))
        self.script.ending, self.script.decision = ending, decision
        worker.finish(claim)

    @precondition(lambda self: any(worker.claims for worker in self.workers))
    @rule(seat=SEATS)
    def crash(self, seat: int) -> None:
        """Nobody knows yet; and the process may only have been stopped for a while."""
        worker = self.workers[seat]
        worker.fall_silent()
        self.ghosts.append(worker)
        self.workers[seat] = SteppedWorker(threads=3, ahead=2)

    @precondition(lambda self: self.ghosts)
    @rule(is_noticed=st.booleans())
    def haunt(self, is_noticed: bool) -> None:
        """A crashed worker is noticed; one that was only stopped saves what it has."""
        if is_noticed:
            recovery.recover_lost(self.config)
        else:
            for ghost in self.ghosts:
                ghost.save()

    @rule(
        seconds=st.sampled_from([6, 20, 61, 1, 3_600]),
        is_kept_up=st.sampled_from([True, True, False]),
        is_worked=st.booleans(),
    )
    def pass_time(self, seconds: int, is_kept_up: bool, is_worked: bool) -> None:
        """The workers send their heartbeats, and may do what time makes necessary."""
        self.traveller.shift(seconds)
        rows = [worker.row.pk for worker in self.workers]
        Worker.objects.filter(pk__in=rows).update(heartbeat_time=timezone.now())
        if is_kept_up:
            recovery.time_out_overdue(self.config)
            recovery.match_early(self.config)
            recovery.expire_early(self.config)
        if is_worked:
            self._work(self.workers[0], retry_at_once)

    # Partners

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), kind=KINDS, payload=PAYLOADS, message_id=MESSAGE_IDS)
    def answer_by_key(
        self, data: st.DataObject, kind: str, payload: str, message_id: str | None
    ) -> None:
        pk, _ = data.draw(st.sampled_from(sorted(self.sent)), "job and attempt")
        job = self._job(pk)
        if job and job.job_key != NONE:
            self._answer(job, kind, payload, message_id)

    @rule(pk=jobs, kind=KINDS, payload=PAYLOADS)
    def answer_before_asked(self, pk: int, kind: str, payload: str) -> None:
        job = self._job(pk)
        if job and job.job_key != NONE:
            self._answer(job, kind, payload, None)

    @rule(job_type=types, kind=KINDS, payload=PAYLOADS)
    def answer_before_enqueued(self, job_type: str, kind: str, payload: str) -> None:
        self._send(job_type, "key-9", kind, payload)

    def _answer(self, job: Job, kind: str, payload: str, message_id: str | None) -> None:
        name, live = job.job_type.name, self._live(job.job_type.name, job.job_key)
        known = Answer.objects.filter(job_type=name, message_id=message_id or "").first()
        answer = self._send(name, job.job_key, kind, payload, message_id=message_id)
        if known:
            assert answer == known
        elif live and kind == Kind.RESPONSE and live.state == State.RUNNING and not live.answered:
            assert answer.status == Status.ACCEPTED
            self._check_accepted(answer, live)

    def _send(self, job_type: str, key: str, kind: str, payload: str, **options: Any) -> Answer:
        send = hipq.complete if kind == Kind.RESPONSE else hipq.fail
        return send(job_type, key, payload, **options)

    def _check_accepted(self, answer: Answer, job: Job) -> None:
        job.refresh_from_db()
        if "on_response" in TYPES[job.job_type.name]:
            assert job.answered
        else:
            assert (job.outcome, job.result) == (Outcome.SUCCEEDED, answer.payload)

    @precondition(lambda self: self.sent)
    @rule(data=st.data(), kind=KINDS, payload=PAYLOADS)
    def answer_by_url(self, data: st.DataObject, kind: str, payload: str) -> None:
        pk, attempt = data.draw(st.sampled_from(sorted(self.sent)), "job and attempt")
        job = self._job(pk)
        is_open = job is not None and self._is_open(job)
        answer = answer_callback(Token("default", pk, attempt), kind, payload)
        if job and (before := self.answered_by_url.get((pk, attempt))):
            assert answer.status in (Status.DUPLICATE, Status.LATE)
            assert answer.status == Status.DUPLICATE or before != (kind, payload)
        elif kind == Kind.RESPONSE and is_open:
            assert answer.status == Status.ACCEPTED
        if answer.status == Status.ACCEPTED:
            self.answered_by_url[pk, attempt] = (kind, payload)

    def _is_open(self, job: Job) -> bool:
        settled = job.answers.filter(status__in=(Status.ACCEPTED, Status.DISCARDED))
        return not (job.is_final or job.answered or settled.exists())

    @rule(pk=jobs, percent=st.sampled_from([0, 40, 100]), seconds=st.sampled_from([1, 30, 900]))
    def report(self, pk: int, percent: int, seconds: int) -> None:
        """The partner says how far it is and that it needs more time."""
        job = self._job(pk)
        if job is None or job.job_key == NONE:
            return
        name, live = job.job_type.name, self._live(job.job_type.name, job.job_key)
        is_running = live is not None and live.state == State.RUNNING
        assert hipq.progress(name, job.job_key, percent) == is_running
        deadline = hipq.extend(name, job.job_key, seconds)
        if live is None or not is_running:
            assert deadline is None
            return
        live.refresh_from_db()
        assert (live.progress, live.deadline) == (percent, deadline)
        assert live.deadline <= live.start_time + timedelta(seconds=10 * live.timeout)

    # Operators

    @precondition(lambda self: any(a["job_id"] is None for a in self.before.answers.values()))
    @rule(data=st.data(), pk=jobs)
    def match_by_hand(self, data: st.DataObject, pk: int) -> None:
        free = Answer.objects.filter(job=None).order_by("pk")
        answer, job = data.draw(st.sampled_from(list(free)), "answer"), self._job(pk)
        reason = inbox.refusal(answer, job) if job else "pruned"
        try:
            matched = answers.assign(answer, pk)
        except InvalidAnswerError:
            assert reason
        else:
            assert (reason, matched.job) == ("", job)
            assert matched.status in (Status.ACCEPTED, Status.EARLY)

    @rule(target=jobs, pk=jobs, verb=st.sampled_from([hipq.run_now, hipq.requeue, hipq.cancel]))
    def operate(self, pk: int, verb: Callable[[Job], Job]) -> int | MultipleResults[int]:
        job = self._job(pk)
        if job is None:
            return multiple()
        is_allowed: dict[Callable[[Job], Job], bool] = {
            hipq.run_now: job.state in WAITING,
            hipq.requeue: job.is_final,
            hipq.cancel: not job.is_final,
        }
        try:
            moved = verb(job)
        except InvalidJobError:
            assert not is_allowed[verb]
        except DuplicateJobKeyError as error:
            assert error.job == self._live(job.job_type.name, job.job_key)
        else:
            assert is_allowed[verb]
            return moved.pk if moved.pk != pk else multiple()
        return multiple()

    @precondition(lambda self: self.before.in_state(State.FINAL))
    @rule()
    def prune(self) -> None:
        retention.prune(self.config, days=0.0001)

    @rule(
        name=st.sampled_from([FREE, NARROW]),
        limit=st.sampled_from([0, 1, LIMIT, 2 * LIMIT]),
        is_paused=st.sampled_from([False, False, False, True]),
    )
    def change_queue(self, name: str, limit: int, is_paused: bool) -> None:
        Queue.objects.filter(name=name).update(throttle_limit=limit, paused=is_paused)

    # What holds after every step

    @invariant()
    def rows_are_sound(self) -> None:
        after = Snapshot.take()
        check_step(self.before, after)
        self._check_hands(after)
        self._check_no_response_is_lost(after)
        self.before = after

    def _check_hands(self, now: Snapshot) -> None:
        """What the database says is in a worker's hands is in its batch."""
        for worker in self.workers:
            rows = {pk for pk, job in now.jobs.items() if job["worker_id"] == worker.row.pk}
            assert rows <= worker.scheduler.batch.keys(), "a job in hand is not in the batch"

    def _check_no_response_is_lost(self, now: Snapshot) -> None:
        handled = {pk for pk, _, work in self.issued if work is Work.RESPONSE}
        for answer in now.accepted_responses():
            job = now.jobs[answer["job_id"]]
            if job["outcome"] in (Outcome.FAILED, Outcome.TIMED_OUT):
                assert job["id"] in handled | self.script.responded, (
                    f"the job ended without a look at its response: {job}"
                )

    # The end

    def teardown(self) -> None:
        try:
            if not connection.needs_rollback:
                self._run_to_the_end()
        finally:
            transaction.set_rollback(True)
            self.transaction.__exit__(None, None, None)

    def _run_to_the_end(self) -> None:
        """Let time pass, with no one but fresh workers at work: every job ends."""
        Queue.objects.update(paused=False)
        Worker.objects.update(heartbeat_time=MONDAY_NOON - A_LONG_TIME)
        self.script.ending, self.script.decision = return_value, give_up
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

    def _work_for_a_while(self) -> None:
        self.traveller.shift(timedelta(minutes=20))  # no window is shorter
        recovery.recover_lost(self.config)
        run_due_jobs()
        recovery.expire_early(self.config)
        self.rows_are_sound()

    def _job(self, pk: int) -> Job | None:
        """Return the job unless it was pruned."""
        return Job.objects.select_related("job_type").filter(pk=pk).first()

    def _live(self, job_type: str, key: str | None) -> Job | None:
        if key is None:
            return None
        jobs = Job.objects.live().select_related("job_type")
        return jobs.filter(job_type__name=job_type, job_key=key).first()


def test_any_order_of_steps_keeps_the_rules_and_ends_every_job(
    declare: Declare, frozen_time: time_machine.Traveller, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "hipq_django")  # the steps that failed say more
    script = Script()
    declare_types(declare, script)
    run_state_machine_as_test(
        partial(JobLife, script, frozen_time),  # type: ignore[arg-type]
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            print_blob=True,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )
