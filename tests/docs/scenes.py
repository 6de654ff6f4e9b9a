"""What the tables of the guarantees say, acted out: each row has one scene or more."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest
from django.db.models import ProtectedError
from django.test import Client

import hipq_django as hipq
from hipq_django import transitions
from hipq_django.conf.instances import get_instance
from hipq_django.database import clock
from hipq_django.maintenance import recovery
from hipq_django.models import Answer, Job, Queue, Worker, catalog
from tests.declaring import Declare
from tests.hand_worker import HandWorker

SILENCE = timedelta(seconds=31)
"""Longer than three of the test settings' heartbeats."""


class Stage:
    """Job types that note when they are called, and a worker that the scene moves by hand."""

    def __init__(self, declare: Declare) -> None:
        self.calls: list[str] = []
        declare("plain")(self._noting("plain", hipq.WAIT))
        declare("again", retry=hipq.Fixed(0))(self._noting("again", hipq.WAIT))
        declare("result")(self._noting("result", "result"))
        broken: Any = declare("broken")(self._raising)
        broken.on_response(self._noting("response", "result of the response handler"))
        self.parts = hipq.WAIT_FOR("front", "back")
        declare("parts", retry=hipq.Fixed(0))(lambda job: self.parts)
        catalog.sync("default")
        self.worker = HandWorker()

    def _noting(self, name: str, value: Any) -> Callable[..., Any]:
        def handler(*_: Any) -> Any:
            self.calls.append(name)
            return value

        return handler

    def _raising(self, job: Job) -> None:
        raise RuntimeError(f"the connection broke after the request of {job} was sent")

    def waiting(self, job_type: str) -> Job:
        """Return a job that sent its request and waits for the answer."""
        job = hipq.enqueue(job_type, job_key="key")
        self.worker.work()
        return job

    def executing(self, job_type: str, worker: HandWorker | None = None) -> Job:
        """Return a job whose handler was started and has not returned."""
        job = hipq.enqueue(job_type, job_key="key")
        assert (worker or self.worker).run_pass() == [job]
        return job

    def ended(self, job_type: str) -> Job:
        """Return a job that has ended by a timeout."""
        job = self.waiting(job_type)
        self.time_out(job)
        self.worker.work()
        assert fresh(job).outcome == "timed_out"
        return job

    def return_now(self) -> None:
        """Let the handlers that were started return."""
        self.worker.execute()
        self.worker.save()

    def time_out(self, job: Job) -> None:
        """Let the job's time run out, and somebody notice."""
        overdue = clock.now("default") - timedelta(seconds=1)
        Job.objects.filter(pk=job.pk).update(deadline=overdue)
        assert recovery.time_out_overdue(get_instance()) == 1

    def lose(self, worker: HandWorker) -> None:
        """Let a worker be silent for too long, and somebody notice."""
        silent_since = clock.now("default") - SILENCE
        Worker.objects.filter(pk=worker.row.pk).update(heartbeat_time=silent_since)
        recovery.recover_lost(get_instance())


Scene = Callable[[Stage], None]
RACES: list[tuple[str, Scene]] = []
LOSSES: list[tuple[str, Scene]] = []


def race(row: str) -> Callable[[Scene], Scene]:
    """Say which row of "Who wins a race" the scene acts out."""
    return _row_of(RACES, row)


def loss(row: str) -> Callable[[Scene], Scene]:
    """Say which row of "When a worker is lost" the scene acts out."""
    return _row_of(LOSSES, row)


def _row_of(scenes: list[tuple[str, Scene]], row: str) -> Callable[[Scene], Scene]:
    def register(scene: Scene) -> Scene:
        scenes.append((row, scene))
        return scene

    return register


def fresh(job: Job) -> Job:
    """Return the job as the database has it now."""
    return Job.objects.get(pk=job.pk)


def end_of(job: Job) -> tuple[str, str, Any]:
    """Return state, outcome and result."""
    row = fresh(job)
    return row.state, row.outcome, row.result


def post(url: str, content: Any) -> int:
    """POST an answer to a callback URL; return the status of the response."""
    body = json.dumps(content)
    return Client().post(url, body, content_type="application/json").status_code


def callback_url(job: Job) -> str:
    """Return the signed path for the job's present attempt."""
    return hipq.callback_url(fresh(job)).removeprefix("http://testserver")


# Who wins a race

EARLY = (
    "A response comes before its job was enqueued or claimed, or "
    "before the handler has set its key."
)
TWO = "Two different answers come to one job or attempt."
AFTER_FAILURE = "A response comes after a timeout or an error answer, while the job lives."
TWICE = "The same answer, or the same message id, comes twice."
OVER = "A job is cancelled or times out while its handler executes."
BACK = "A lost worker comes back."
SAME_KEY = "Two jobs of one type have the same key, or a running job is to be replaced."
LIMIT = "The limit of a queue is set or lowered while jobs run or are claimed."


@race("A response comes while the handler executes.")
def response_while_executing(stage: Stage) -> None:
    """The response is the result; with a response handler, what that returns."""
    returning, raising = stage.executing("result"), stage.executing("broken")

    statuses = [hipq.complete(name, "key", "yes").status for name in ("result", "broken")]
    stage.return_now()
    stage.worker.work()

    assert statuses == ["accepted", "accepted"]
    assert end_of(returning) == ("final", "succeeded", "yes")
    assert end_of(raising) == ("final", "succeeded", "result of the response handler")


@race(EARLY)
def response_before_claim(stage: Stage) -> None:
    """Even for a job of tomorrow."""
    tomorrow = clock.now("default") + timedelta(days=1)
    job = hipq.enqueue("plain", job_key="key", scheduled_run_time=tomorrow)

    answer = hipq.complete("plain", "key", "yes")
    stage.worker.work()

    assert answer.status == "early"
    assert end_of(job) == ("final", "succeeded", "yes")
    assert stage.calls == []


@race(EARLY)
def response_before_enqueue(stage: Stage) -> None:
    """It is kept for the job."""
    answer = hipq.complete("plain", "key", "yes")
    job = hipq.enqueue("plain", job_key="key")
    stage.worker.work()

    assert answer.status == "early"
    assert end_of(job) == ("final", "succeeded", "yes")
    assert stage.calls == []


@race(EARLY)
def response_before_key(stage: Stage) -> None:
    """The partner is quicker than our handler."""
    job = hipq.enqueue("plain")
    [copy] = stage.worker.run_pass()

    answer = hipq.complete("plain", "bank-77", "yes")
    is_set = copy.set_key("bank-77")
    stage.return_now()

    assert (answer.status, is_set) == ("early", True)
    assert end_of(job) == ("final", "succeeded", "yes")


@race("A response comes while the handler executes.")
def key_after_response(stage: Stage) -> None:
    """The partner called the signed URL at once."""
    job = hipq.enqueue("plain")
    [copy] = stage.worker.run_pass()
    assert post(callback_url(job), {"response": "yes"}) == 200

    is_set = copy.set_key("bank-77")
    stage.return_now()

    assert (is_set, fresh(job).job_key) == (False, "NONE")
    assert end_of(job) == ("final", "succeeded", "yes")


@race(TWO)
def two_early_responses(stage: Stage) -> None:
    """Before it was enqueued, and after."""
    for enqueued in (False, True):
        early = [] if enqueued else [hipq.complete("plain", "key", text) for text in ("yes", "no")]
        job = hipq.enqueue("plain", job_key="key")
        early += [hipq.complete("plain", "key", text) for text in ("yes", "no") if enqueued]

        stage.worker.work()

        assert end_of(job) == ("final", "succeeded", "yes")
        statuses = [Answer.objects.get(pk=answer.pk).status for answer in early]
        assert statuses == ["accepted", "late" if enqueued else "duplicate"]
        job.delete()
    assert stage.calls == []


@race(AFTER_FAILURE)
def response_after_timeout(stage: Stage) -> None:
    """In retry, and in error before anything was decided."""
    for decided in (True, False):
        job = stage.waiting("again")
        stage.time_out(job)
        if decided:
            stage.worker.run_pass()
            stage.return_now()
        assert fresh(job).state == ("retry" if decided else "error")

        answer = hipq.complete("again", "key", "yes")
        stage.worker.work()

        assert answer.status == "accepted"
        assert end_of(job) == ("final", "succeeded", "yes")
    assert stage.calls == ["again", "again"]


@race("A response comes after the job has ended.")
def response_after_end(stage: Stage) -> None:
    """It changes nothing."""
    job = stage.ended("plain")

    assert hipq.complete("plain", "key", "yes").status == "late"
    assert end_of(job) == ("final", "timed_out", None)


@race(AFTER_FAILURE)
def response_after_error(stage: Stage) -> None:
    """The partner has thought better of it."""
    job = stage.waiting("again")
    hipq.fail("again", "key", "declined")

    assert hipq.complete("again", "key", "yes").status == "accepted"
    assert end_of(job) == ("final", "succeeded", "yes")


@race(TWO)
def second_answer_by_url(stage: Stage) -> None:
    """The attempt has had its say."""
    job = stage.waiting("again")
    url = callback_url(job)

    assert post(url, {"error": "declined"}) == 200
    assert post(url, {"response": "yes"}) == 410
    assert fresh(job).state == "error"
    assert Answer.objects.filter(job=job, status="late").count() == 1


@race("An answer comes by the URL of an earlier attempt that was never answered.")
def answer_to_an_earlier_attempt(stage: Stage) -> None:
    """A response settles the job; an error does not disturb the present attempt."""
    job = stage.waiting("again")
    first_url = callback_url(job)
    stage.time_out(job)
    stage.worker.work()
    stage.worker.work()
    assert (fresh(job).state, fresh(job).attempt) == ("running", 2)

    assert post(first_url, {"error": "declined"}) == 410
    assert fresh(job).state == "running"
    assert post(first_url, {"response": "yes"}) == 200
    assert end_of(job) == ("final", "succeeded", "yes")


@race("An error answer comes after the timeout of its attempt.")
def error_answer_after_timeout(stage: Stage) -> None:
    """What the other system says replaces what was guessed."""
    job = stage.waiting("again")
    stage.time_out(job)
    stage.worker.run_pass()
    stage.return_now()
    assert fresh(job).state == "retry"

    assert hipq.fail("again", "key", "declined").status == "accepted"
    assert (fresh(job).state, fresh(job).error) == ("error", "declined")
    assert [attempt.kind for attempt in fresh(job).attempts.all()] == ["answered"]


@race(TWO)
def another_response(stage: Stage) -> None:
    """The first one counts."""
    job = stage.waiting("plain")

    assert hipq.complete("plain", "key", "yes").status == "accepted"
    assert hipq.complete("plain", "key", "no").status == "late"
    assert end_of(job) == ("final", "succeeded", "yes")


@race(TWICE)
def same_answer_twice(stage: Stage) -> None:
    """By key and by URL."""
    job = stage.waiting("plain")
    url = callback_url(job)

    statuses = [hipq.complete("plain", "key", "yes").status for _ in range(2)]

    assert statuses == ["accepted", "duplicate"]
    assert post(url, {"response": "yes"}) == 200
    assert end_of(job) == ("final", "succeeded", "yes")


@race(TWICE)
def same_message_id(stage: Stage) -> None:
    """The second is not even stored."""
    stage.waiting("plain")
    first = hipq.complete("plain", "key", "yes", message_id="m-1")

    assert hipq.complete("plain", "other key", "no", message_id="m-1") == first
    assert Answer.objects.count() == 1


@race("A response comes after the job has ended.")
def answer_of_yesterday(stage: Stage) -> None:
    """Nobody's payment is settled by yesterday's message."""
    stage.ended("plain")
    answer = hipq.complete("plain", "key", "yes")
    job = stage.waiting("plain")

    assert answer.status == "late"
    assert end_of(job) == ("running", "NONE", None)


@race(OVER)
def cancel_while_executing(stage: Stage) -> None:
    """What the handler returns is dropped."""
    job = stage.executing("result")

    hipq.cancel(job)
    stage.return_now()

    assert stage.calls == ["result"]
    assert end_of(job) == ("final", "cancelled", None)


@race(OVER)
def timeout_while_executing(stage: Stage) -> None:
    """What the handler returns counts until that is decided about."""
    in_time = stage.executing("result")
    stage.time_out(in_time)
    stage.return_now()
    too_late = stage.executing("result")
    stage.time_out(too_late)
    HandWorker().work()
    stage.return_now()

    assert stage.calls == ["result"] * 2
    assert end_of(in_time) == ("final", "succeeded", "result")
    assert end_of(too_late) == ("final", "timed_out", None)


@race(BACK)
def lost_worker_comes_back(stage: Stage) -> None:
    """Another has the job by then, in its second attempt."""
    job = stage.executing("result")
    lost, stage.worker = stage.worker, HandWorker()
    stage.lose(lost)
    stage.worker.work()
    assert stage.worker.run_pass() == [job]

    lost.execute()
    lost.save()

    assert (fresh(job).state, fresh(job).attempt) == ("running", 2)
    assert fresh(job).worker == stage.worker.row


@race(BACK)
def lost_worker_has_no_result(stage: Stage) -> None:
    """The loss stays in the history of both; an answer by key settles the job."""
    waiting, broken = stage.executing("plain"), stage.executing("broken")
    stage.lose(stage.worker)

    stage.return_now()
    before = [fresh(job).state for job in (waiting, broken)]
    hipq.complete("plain", "key", response="paid")

    assert before == ["error", "error"]
    assert [job.attempts.get().kind for job in (waiting, broken)] == ["worker_lost"] * 2
    assert end_of(waiting) == ("final", "succeeded", "paid")


@race(BACK)
def key_of_a_lost_worker(stage: Stage) -> None:
    """It is told so, and should end."""
    lost = HandWorker()
    stage.executing("plain", lost)
    [claim] = lost.claims
    stage.lose(lost)
    stage.worker.work()
    stage.worker.work()

    with pytest.raises(hipq.InvalidJobError, match="a newer attempt has begun"):
        claim.job.set_key("bank-77")

    assert fresh(claim.job).job_key == "key"


@race("A queue or a job type is deleted while a job is created in it.")
def place_deleted(stage: Stage) -> None:
    """Both come one after the other: a row lock sees to it."""
    first = hipq.enqueue("plain", queue="own")
    for place in (first.queue, first.job_type):
        with pytest.raises(ProtectedError):
            place.delete()

    for row in (first, first.job_type, first.queue):
        row.delete()
    second = hipq.enqueue("plain", queue="own")

    assert fresh(second).queue.name == first.queue.name
    assert fresh(second).job_type.name == "plain"


@race(SAME_KEY)
def same_key_twice(stage: Stage) -> None:
    """Until the first is final."""
    first = stage.waiting("plain")
    with pytest.raises(hipq.DuplicateJobKeyError) as refused:
        hipq.enqueue("plain", job_key="key")
    hipq.cancel(first)
    second = hipq.enqueue("plain", job_key="key")

    assert refused.value.job == first
    assert fresh(second).state == "initial"


@race(SAME_KEY)
def replace_while_running(stage: Stage) -> None:
    """The request is out; nobody can take it back."""
    job = stage.waiting("plain")

    with pytest.raises(hipq.DuplicateJobKeyError):
        hipq.enqueue("plain", job_key="key", on_conflict="replace")

    assert list(Job.objects.live()) == [job]


@race(LIMIT)
def limit_lowered(stage: Stage) -> None:
    """Three run under a limit of one; the fourth starts when all of them have ended."""
    running = [hipq.enqueue("plain", job_key=f"key-{number}") for number in range(3)]
    stage.worker.work()
    Queue.objects.update(throttle_limit=1)
    fourth = hipq.enqueue("plain", job_key="fourth")

    started = []
    for job in running:
        started.append(stage.worker.work())
        hipq.complete("plain", job.job_key)

    assert started == [[], [], []]
    assert stage.worker.work() == [fourth]


@race(LIMIT)
def limit_given_during_a_claim(stage: Stage) -> None:
    """Who claims from a queue without a limit does not lock its row."""
    jobs = [hipq.enqueue("plain", job_key=f"key-{number}") for number in range(2)]
    scheduler = stage.worker.scheduler
    seen, path = scheduler.fetch_due(), scheduler.engine

    def limited_after(read: Callable[..., list[Job]]) -> Callable[..., list[Job]]:
        def read_and_limit(*arguments: Any, **options: Any) -> list[Job]:
            if found := read(*arguments, **options):
                Queue.objects.update(throttle_limit=1)
            return found

        return read_and_limit

    with (
        patch.object(transitions, "claim_due", limited_after(transitions.claim_due)),
        patch.object(path, "due", limited_after(path.due)),
    ):
        claims = [claim for claims in scheduler.apply_throttler(seen) for claim in claims]
    hipq.enqueue("plain", job_key="third")

    assert [claim.job for claim in claims] == jobs
    assert HandWorker().run_pass() == []


@race("A retry waits only for parts that have arrived already.")
def all_parts_are_in(stage: Stage) -> None:
    """The handler asked for less than before."""
    job = stage.waiting("parts")
    hipq.complete("parts", "key", "yes", part="front")
    hipq.fail("parts", "key", "no paper", part="back")
    stage.parts = hipq.WAIT_FOR("front")

    for _ in range(3):
        stage.worker.work()

    assert end_of(job) == ("final", "succeeded", {"front": "yes"})


@race("A worker's connection breaks while its claim is committed.")
def claim_without_confirmation(stage: Stage) -> None:
    """The database says that the job is in these hands, and they do not know."""
    job = stage.executing("plain")
    stage.worker.claims.clear()
    stage.worker.batch.discard(stage.worker.batch)

    assert stage.worker.scheduler.release_unconfirmed() == 1

    assert (fresh(job).state, fresh(job).attempts.count()) == ("retry", 0)
    assert stage.worker.run_pass() == [job]


# When a worker is lost


@loss("A job whose handler had started")
def loss_of_a_started_job(stage: Stage) -> None:
    """Without a policy it runs again at once, and fails at the third loss in a row."""
    job = stage.executing("plain")
    for number in (1, 2, 3):
        lost, stage.worker = stage.worker, HandWorker()
        stage.lose(lost)
        assert "WorkerLost" in fresh(job).error
        stage.worker.work()
        if number < 3:
            assert stage.worker.run_pass() == [job]

    assert end_of(job) == ("final", "failed", None)
    assert [attempt.kind for attempt in fresh(job).attempts.all()] == ["worker_lost"] * 3
    assert stage.calls == []


@loss("A job that it had claimed ahead and not started")
def loss_of_a_job_claimed_ahead(stage: Stage) -> None:
    """It goes back without a failure."""
    lost = HandWorker(threads=0, ahead=1)
    job = stage.executing("plain", lost)

    stage.lose(lost)

    assert (fresh(job).state, fresh(job).attempts.count()) == ("retry", 0)
    assert stage.worker.run_pass() == [job]


@loss("A job in `error` that it was about to decide")
def loss_of_a_decision(stage: Stage) -> None:
    """Another worker decides."""
    job = stage.waiting("plain")
    hipq.fail("plain", "key", "declined")
    stage.worker.run_pass()
    lost, stage.worker = stage.worker, HandWorker()
    assert fresh(job).worker == lost.row

    stage.lose(lost)
    stage.worker.work()

    assert end_of(job) == ("final", "failed", None)
