"""Somebody keeps the row of a job locked: its result waits, and nothing else does."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection

import hipq_django as hipq
from hipq_django.answers import early
from hipq_django.conf.instances import get_instance
from hipq_django.database import clock, refused_rows
from hipq_django.database.refused_rows import RefusedRows
from hipq_django.database.transactions import worker_transaction
from hipq_django.domain.parts import WAIT_FOR
from hipq_django.domain.waits import LOCKED_SECONDS, LastingLocks
from hipq_django.engines import engine_for, postgres
from hipq_django.engines.values import ClaimRequest
from hipq_django.maintenance import early_answers, recovery, reranking
from hipq_django.models import Answer, Attempt, Job, JobType, Queue, Worker
from hipq_django.models.catalog import get_queue
from hipq_django.processes.own_threads import Listener
from hipq_django.processes.worker import POLL_SECONDS
from tests.concurrency.sessions import PATIENCE_SECONDS, Session
from tests.concurrency.test_duties import Process
from tests.declaring import Declare
from tests.factories import AnswerFactory
from tests.hand_worker import HandWorker
from tests.passing import Passing
from tests.processes.conftest import eventually

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has no locks of rows"),
]

LIMIT_SECONDS = 5.0
"""Who waits for a row here waits for half a minute; who is only slow is done long before."""


def fail_once(job: Job) -> str:
    if job.attempt == 1:
        raise OSError("no answer")
    return "done"


def succeed(_: Job) -> str:
    return "done"


def wait(_: Job) -> Any:
    return hipq.WAIT


def wait_for_two(_: Job) -> Any:
    return WAIT_FOR("front", "back")


def snooze(_: Job) -> None:
    raise hipq.Snooze(60)


HANDLERS = [succeed, fail_once, wait, wait_for_two, snooze]


def lock(session: Session, job: Job) -> None:
    """Lock a job's row, as a view does that cancels it and goes on for long."""
    session.begin()
    session(lambda: Job.objects.select_for_update().get(pk=job.pk))


def in_time(step: Callable[[], Any]) -> None:
    began = time.monotonic()
    step()
    assert time.monotonic() - began < LIMIT_SECONDS


WAYS = ["as usual", "after a lock"]
"""A worker that found a row locked a moment ago writes another way for a while."""


def choose_way(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    last = time.monotonic() if way == "after a lock" else -1e9
    monkeypatch.setattr(postgres, "_contended", {"default": last})


@pytest.fixture(params=WAYS)
def was_locked(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    choose_way(monkeypatch, request.param)


@pytest.mark.parametrize("handler", HANDLERS, ids=lambda handler: handler.__name__)
def test_the_results_of_other_jobs_are_written(
    declare: Declare, session: Session, was_locked: None, handler: Callable[[Job], Any]
) -> None:
    declare("work", retry=hipq.Fixed(seconds=60))(handler)
    jobs = hipq.enqueue_many([hipq.NewJob("work", job_key=f"k-{n}") for n in range(3)])
    worker = HandWorker()
    worker.run_pass()
    worker.execute()
    lock(session, jobs[1])

    in_time(worker.save)
    during = [Job.objects.get(pk=job.pk).phase for job in jobs]
    session.roll_back()
    worker.save()

    assert during == ["NONE", "request", "NONE"]
    states = Job.objects.order_by("pk").values_list("state", "phase", "worker")
    assert len(set(states)) == 1
    assert worker.batch.ids == []


@pytest.mark.parametrize("way", WAYS)
def test_a_batch_of_locked_rows_alone_is_written_to_none(
    declare: Declare, session: Session, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """It is no error: that would count as the failure of a job which has succeeded."""
    declare("work", queue="limited")(succeed)
    Queue.objects.create(name="limited", throttle_limit=2)
    job, other = hipq.enqueue_many([hipq.NewJob("work") for _ in range(2)])
    worker = HandWorker(threads=1)
    worker.run_pass()
    lock(session, job)
    engine, now = engine_for("default"), clock.now("default")
    done = [(job.pk, 1, "done", True)]
    types = list(JobType.objects.values_list("pk", flat=True))
    wanted = ClaimRequest(room=1, limit=1, types=types)
    choose_way(monkeypatch, way)

    finished = engine.finish(done, worker.row, now)
    choose_way(monkeypatch, way)
    both = engine.finish_and_claim(done, job.queue, worker.row, now, wanted)
    session.roll_back()

    assert (finished, both[0]) == (set(), set())
    assert [claimed.pk for claimed in both[1]] == [other.pk]
    assert engine.finish(done, worker.row, now) == {job.pk}


def test_a_locked_row_is_left_inside_of_a_transaction_and_the_others_are_written(
    declare: Declare, session: Session
) -> None:
    declare("work")(succeed)
    jobs = hipq.enqueue_many([hipq.NewJob("work") for _ in range(3)])
    worker = HandWorker()
    worker.run_pass()
    lock(session, jobs[1])
    engine, now = engine_for("default"), clock.now("default")
    done = [(job.pk, 1, f"done {job.pk}", True) for job in jobs]
    finished: list[set[int]] = []

    def finish() -> None:
        with worker_transaction("default"):
            finished.append(engine.finish(done, worker.row, now))

    in_time(finish)
    session.roll_back()
    in_time(finish)

    assert finished == [{jobs[0].pk, jobs[2].pk}, {jobs[1].pk}]
    results = dict(Job.objects.values_list("pk", "result"))
    assert results == {job.pk: f"done {job.pk}" for job in jobs}


def test_a_limited_queue_goes_on(declare: Declare, session: Session) -> None:
    Queue.objects.create(name="limited", throttle_limit=2)
    declare("work", queue="limited")(succeed)
    jobs = hipq.enqueue_many([hipq.NewJob("work") for _ in range(6)])
    worker = HandWorker()
    worker.run_pass()
    lock(session, jobs[0])

    for _ in range(9):
        worker.execute()
        in_time(worker.run_pass)
    done = Job.objects.final().count()
    session.roll_back()
    worker.save()

    assert done == 5
    assert Job.objects.filter(outcome="succeeded").count() == 6


def test_a_decision_waits_too(declare: Declare, session: Session) -> None:
    flaky = declare("flaky")(fail_once)
    flaky.on_error(lambda job: hipq.RetryIn(60))
    jobs = [flaky.enqueue(), flaky.enqueue()]
    worker = HandWorker()
    worker.work()
    worker.run_pass()
    worker.execute()
    lock(session, jobs[0])

    in_time(worker.save)
    during = [Job.objects.get(pk=job.pk).state for job in jobs]
    session.roll_back()
    worker.save()

    assert during == ["error", "retry"]
    assert Job.objects.filter(state="retry").count() == 2


def test_a_key_that_somebody_is_about_to_take_is_waited_for_in_later_passes(
    declare: Declare, session: Session
) -> None:
    """An open transaction may still be rolled back; then the key is free."""
    flaky = declare("flaky")(fail_once)

    @flaky.on_error
    def other_key(job: Job) -> hipq.RetryIn:
        job.job_key = "wanted" if job.job_key == "first" else job.job_key
        job.priority = 7
        return hipq.RetryIn(60)

    jobs = [flaky.enqueue(job_key="first"), flaky.enqueue(job_key="second")]
    worker = HandWorker()
    worker.work()
    worker.run_pass()
    worker.execute()
    session.begin()
    session(lambda: flaky.enqueue(job_key="wanted"))

    in_time(worker.save)
    during = [Job.objects.get(pk=job.pk).state for job in jobs]
    session.roll_back()
    worker.save()

    assert during == ["error", "retry"]
    jobs[0].refresh_from_db()
    assert (jobs[0].state, jobs[0].job_key) == ("retry", "wanted")


def test_a_result_that_was_waited_for_in_vain_is_dropped(
    declare: Declare, session: Session
) -> None:
    declare("work")(succeed)
    job = hipq.enqueue("work")
    worker = HandWorker()
    worker.run_pass()
    worker.execute()
    session.begin()
    session(lambda: hipq.cancel(job))

    worker.save()
    kept = worker.batch.ids
    session.commit()
    worker.save()

    job.refresh_from_db()
    assert (kept, worker.batch.ids) == ([job.pk], [])
    assert job.outcome == "cancelled"


def test_an_early_answer_that_somebody_has_locked_stops_no_other_queue(
    declare: Declare, session: Session
) -> None:
    declare("work")(succeed)
    answer = AnswerFactory.create(job_type="work", job_key="k")
    job = hipq.enqueue("work", job_key="k", queue="a", time_windows=["00:00-24:00"])
    other = hipq.enqueue("work", queue="b", time_windows=["00:00-24:00"])
    session.begin()
    session(lambda: Answer.objects.select_for_update().get(pk=answer.pk))
    worker = HandWorker()

    in_time(worker.run_pass)
    session.roll_back()
    worker.run_pass()

    other.refresh_from_db()
    job.refresh_from_db()
    assert (other.state, job.state, job.result) == ("running", "final", "yes")


def lock_table(session: Session, name: str) -> None:
    """Lock a table, as a migration does."""
    session.begin()
    session(lambda: connection.cursor().execute(f"LOCK TABLE {name} IN ACCESS EXCLUSIVE MODE"))


def test_a_locked_inbox_keeps_no_queue_waiting_that_does_not_need_it(
    declare: Declare, session: Session
) -> None:
    """Whether an answer came early is asked only of jobs with a key."""
    declare("work")(succeed)
    keyed = hipq.enqueue("work", job_key="k", queue="a")
    other = hipq.enqueue("work", queue="b")
    worker = HandWorker()
    lock_table(session, "hipq_answer")

    in_time(worker.work)
    session.roll_back()
    worker.run_pass()

    assert Job.objects.get(pk=other.pk).state == "final"
    assert Job.objects.get(pk=keyed.pk).state == "running"


def test_failures_wait_for_their_table_and_keep_nothing_else_waiting(
    declare: Declare, session: Session
) -> None:
    """Not even a hundred: each would wait for a tenth of a second."""
    declare("work")(succeed)
    declare("asks")(wait)
    declare("fails", retry=hipq.Never())(lambda job: 1 / 0)
    names = ["work", "asks", *["fails"] * 100, "work"]
    jobs = hipq.enqueue_many([hipq.NewJob(name) for name in names])
    worker = HandWorker()
    worker.run_pass()
    worker.execute()
    behind = hipq.enqueue("work")
    lock_table(session, "hipq_attempt")

    in_time(worker.run_pass)
    session.roll_back()
    written = [Job.objects.get(pk=jobs[n].pk) for n in (0, 1, -1)]
    kept = len(worker.batch)
    worker.run_pass()

    assert [(job.state, job.phase) for job in written] == [
        *(("final", "NONE"), ("running", "NONE"), ("final", "NONE"))
    ]
    assert kept == 101
    assert worker.batch.ids == [behind.pk]
    assert Job.objects.ended(Job.Outcome.FAILED).count() == 100


def test_decisions_wait_for_their_table_together(declare: Declare, session: Session) -> None:
    """They set answers aside, row by row; each would wait for a tenth of a second."""
    asks = declare("asks")(lambda job: 1 / 0)
    asks.on_error(lambda job: hipq.RetryIn(60, resend=True))
    hipq.enqueue_many([hipq.NewJob("asks") for _ in range(100)])
    worker = HandWorker()
    worker.work()
    worker.run_pass()
    worker.execute()
    lock_table(session, "hipq_answer")

    in_time(worker.save)
    session.roll_back()
    during = Job.objects.filter(state="error").count()
    worker.save()

    assert during == 100
    assert Job.objects.filter(state="retry").count() == 100


def test_an_early_part_that_somebody_has_locked_keeps_only_its_job_waiting(
    declare: Declare, session: Session
) -> None:
    declare("work")(wait_for_two)
    jobs = [hipq.enqueue("work", job_key=key) for key in "abc"]
    worker = HandWorker()
    worker.run_pass()
    hipq.complete("work", "b", 1, part="front")
    worker.execute()
    answer = Answer.objects.get(job=jobs[1])
    session.begin()
    session(lambda: Answer.objects.select_for_update().get(pk=answer.pk))

    in_time(worker.run_pass)
    during = [Job.objects.get(pk=job.pk).phase for job in jobs]
    session.roll_back()
    worker.run_pass()

    assert during == ["NONE", "request", "NONE"]
    assert worker.batch.ids == []
    answer.refresh_from_db()
    assert answer.status == "accepted"


def test_a_job_that_is_locked_keeps_no_other_from_its_early_answer(
    declare: Declare, session: Session
) -> None:
    declare("asked")(wait)
    jobs = [hipq.enqueue("asked", job_key=key) for key in "ab"]
    HandWorker().work()
    for key in "ab":
        AnswerFactory.create(job_type="asked", job_key=key)
    lock(session, jobs[0])

    in_time(lambda: early_answers.match_early(get_instance()))
    session.roll_back()
    during = [Job.objects.get(pk=job.pk).state for job in jobs]
    early_answers.match_early(get_instance())

    assert during == ["running", "final"]
    assert Job.objects.final().count() == 2


def early_of(number: int) -> list[str]:
    """Return the keys of so many jobs that wait, each with an early answer."""
    keys = [f"k{n}" for n in range(number)]
    for key in keys:
        hipq.enqueue("asked", job_key=key)
    HandWorker().work()
    for key in keys:
        AnswerFactory.create(job_type="asked", job_key=key)
    return keys


def match_until(answers: early_answers.EarlyAnswers, number: int) -> None:
    """Give early answers to their jobs until so many have ended."""

    def have_ended() -> bool:
        answers.match()
        return Job.objects.final().count() == number

    eventually(have_ended, f"{number} jobs have their answers")


@pytest.mark.parametrize("table", ["hipq_answer", "hipq_job"])
def test_early_answers_wait_for_a_locked_table_a_few_times(
    declare: Declare, session: Session, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    declare("asked")(wait)
    early_of(20)
    match, tried = early.match, []

    def note(answer: Answer, *args: Any, **kwargs: Any) -> bool:
        tried.append(answer.pk)
        return match(answer, *args, **kwargs)

    monkeypatch.setattr(early, "match", note)
    answers = early_answers.EarlyAnswers(get_instance())
    session.begin()
    session(lambda: connection.cursor().execute(f"LOCK TABLE {table} IN SHARE MODE"))

    during = answers.match()
    waits = len(tried)
    session.roll_back()
    match_until(answers, 20)

    assert during == 0
    assert waits <= 8


def lock_answers_for_a_try(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lock all answers until one has been tried to be matched."""
    match, tried = early.match, []

    def note(answer: Answer, *args: Any, **kwargs: Any) -> bool:
        tried.append(answer.pk)
        try:
            return match(answer, *args, **kwargs)
        finally:
            if len(tried) == 1:
                session.roll_back()

    monkeypatch.setattr(early, "match", note)
    session.begin()
    session(lambda: connection.cursor().execute("LOCK TABLE hipq_answer IN SHARE MODE"))


@pytest.mark.parametrize("name", ["asked", "bill"])
@pytest.mark.parametrize("waits", [1, refused_rows.MAX_WAITS])
def test_the_second_early_answer_to_a_job_does_not_overtake_the_first_that_waits(
    declare: Declare, session: Session, monkeypatch: pytest.MonkeyPatch, waits: int, name: str
) -> None:
    """The lock is gone when the second has its turn: in the same look, or in the next."""
    declare("asked", aliases=["bill"])(wait)
    job = hipq.enqueue("asked", job_key="k")
    HandWorker().work()
    AnswerFactory.create(job_type="asked", job_key="k", payload="first")
    AnswerFactory.create(job_type=name, job_key="k", payload="second")
    monkeypatch.setattr(early_answers, "MAX_WAITS", waits)
    answers, passing = early_answers.EarlyAnswers(get_instance()), Passing(monkeypatch)
    lock_answers_for_a_try(session, monkeypatch)

    answers.match()
    answers.match()
    passing.seconds += LOCKED_SECONDS
    answers.match()

    job.refresh_from_db()
    assert job.result == "first"


def test_a_lock_that_lasts_is_named_once_and_its_end_too(
    declare: Declare, session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    declare("work")(succeed)
    job = hipq.enqueue("work")
    worker = HandWorker(patience_seconds=0.5)
    worker.row.heartbeat_seconds = 0.01
    worker.run_pass()
    worker.execute()
    lock(session, job)

    with caplog.at_level(logging.WARNING, logger="hipq_django"):
        worker.save()
        at_first = list(caplog.messages)
        until = time.monotonic() + PATIENCE_SECONDS
        while not caplog.messages and time.monotonic() < until:
            worker.save()
        worker.save()
        session.roll_back()
        worker.save()

    assert at_first == []
    said = [(getattr(r, "event", ""), getattr(r, "job_id", 0)) for r in caplog.records]
    assert said == [("job_locked", job.pk), ("job_unlocked", job.pk)]


# The row of a queue


def lock_queue(session: Session, queue: Queue) -> None:
    """Lock a queue's row, as somebody does who edits it and goes on for long."""
    session.begin()
    session(lambda: Queue.objects.select_for_update().get(pk=queue.pk))


def assert_named_once(
    worker: HandWorker, session: Session, caplog: pytest.LogCaptureFixture, queue: str
) -> None:
    """Check that a lock of `session` is named once, and its end; then the queue's job starts."""
    with caplog.at_level(logging.WARNING, logger="hipq_django"):
        worker.run_pass()
        at_first = list(caplog.messages)
        eventually(lambda: worker.run_pass() or caplog.messages, "it is named")
        worker.run_pass()
        session.roll_back()
        claimed = worker.run_pass()

    assert at_first == []
    said = [(getattr(r, "event", ""), getattr(r, "queue", "")) for r in caplog.records]
    assert said == [("queue_locked", queue), ("queue_unlocked", queue)]
    assert len(claimed) == 1


def test_a_queue_that_stays_locked_is_named_once_and_its_end_too(
    declare: Declare, session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    queue = Queue.objects.create(name="limited", throttle_limit=2)
    declare("work", queue="limited")(succeed)
    hipq.enqueue("work")
    worker = HandWorker()
    worker.scheduler.locked_queues = LastingLocks(0.5)
    lock_queue(session, queue)

    assert_named_once(worker, session, caplog, "limited")


def test_a_queue_that_waits_for_a_locked_table_is_named_once_and_its_end_too(
    declare: Declare, session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    """Each pass finds it locked; the log is not to say so each time."""
    declare("work", queue="a")(succeed)
    hipq.enqueue("work", job_key="k")
    worker = HandWorker()
    worker.scheduler.locked_queues = LastingLocks(0.5)
    lock_table(session, "hipq_answer")

    assert_named_once(worker, session, caplog, "a")


def test_a_queue_in_which_nothing_waits_any_more_is_not_named(
    declare: Declare, session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    """Mostly it was another worker that had it locked, and has claimed what was due."""
    queue = Queue.objects.create(name="limited", throttle_limit=2)
    declare("work", queue="limited")(succeed)
    job = hipq.enqueue("work")
    worker = HandWorker()
    worker.scheduler.locked_queues = LastingLocks(0.1)
    lock_queue(session, queue)
    worker.run_pass()
    session.roll_back()
    hipq.cancel(job)
    worker.run_pass()

    began = time.monotonic()
    eventually(lambda: time.monotonic() > began + 0.1, "the time is over")
    hipq.enqueue("work")
    lock_queue(session, queue)
    with caplog.at_level(logging.WARNING, logger="hipq_django"):
        worker.run_pass()
    session.roll_back()

    assert worker.scheduler.contended
    assert caplog.messages == []


def test_a_worker_tries_a_queue_that_stays_locked_as_seldom_as_if_it_were_idle(
    declare: Declare, session: Session
) -> None:
    queue = Queue.objects.create(name="limited", throttle_limit=2)
    declare("work", queue="limited")(succeed)
    hipq.enqueue("work")
    process = Process()
    process.listener = Listener(process.worker, process.config, lambda queue: None)
    lock_queue(session, queue)

    process.scheduler.run_once()
    first = process.contended_pause()
    eventually(
        lambda: process.scheduler.run_once() or process.contended_pause() > POLL_SECONDS / 2,
        "the pauses have grown",
    )
    session.roll_back()

    assert first < POLL_SECONDS / 10
    assert process.scheduler.run_once() == 1


# What a trigger of the project waits for


@pytest.fixture
def counting(transactional_db: None) -> Iterator[None]:
    """A trigger that counts, in a row of the project's for each key, what becomes of jobs."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE account (id text PRIMARY KEY, done int DEFAULT 0)")
        cursor.execute("INSERT INTO account (id) VALUES ('hot'), ('a'), ('b'), ('c'), ('d')")
        cursor.execute(
            "CREATE FUNCTION count_done() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "UPDATE account SET done = done + 1 WHERE id = NEW.job_key; RETURN NEW; END $$"
        )
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP FUNCTION count_done() CASCADE")
        cursor.execute("DROP TABLE account")


def count_when(condition: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            f"CREATE TRIGGER count_done AFTER UPDATE ON hipq_job FOR EACH ROW WHEN ({condition}) "
            "EXECUTE FUNCTION count_done()"
        )


def lock_account() -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE account SET done = done WHERE id = 'hot'")


ACCOUNTS = ["hot", "a", "b", "c", "d"]


def ended_keys() -> list[str]:
    return sorted(Job.objects.final().values_list("job_key", flat=True))


def work_until(worker: HandWorker, keys: list[str]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while ended_keys() != sorted(keys):
        assert time.monotonic() < deadline, ended_keys()
        worker.work()


@pytest.mark.postgres
@pytest.mark.parametrize("limit", [0, 9])
def test_a_claim_whose_trigger_waits_for_a_lock_stops_only_its_job(
    counting: None, session: Session, limit: int, caplog: pytest.LogCaptureFixture
) -> None:
    get_queue("default", "default")
    Queue.objects.update(throttle_limit=limit)
    count_when("NEW.state = 'running'")
    for key in ACCOUNTS:
        hipq.enqueue("echo", job_key=key)
    worker = HandWorker()
    worker.scheduler._lasting = LastingLocks(0.5)
    session.begin()
    session(lock_account)

    work_until(worker, ACCOUNTS[1:])
    deadline = time.monotonic() + PATIENCE_SECONDS
    while "event=job_locked" not in caplog.text:
        assert time.monotonic() < deadline
        worker.work()
    session.roll_back()
    work_until(worker, ACCOUNTS)

    assert caplog.text.count("event=job_locked") == 1
    assert "event=job_unlocked" in caplog.text
    assert set(Job.objects.values_list("attempt", flat=True)) == {1}


@pytest.mark.postgres
def test_a_takeover_whose_triggers_wait_for_a_lock_takes_little_time_and_stops_no_other(
    counting: None, session: Session
) -> None:
    """Each wait takes a tenth of a second: they are looked for over several calls."""
    count_when("NEW.state = 'error'")
    jobs = [hipq.NewJob("echo", job_key=f"k-{n}") for n in range(200)]
    jobs.insert(90, hipq.NewJob("echo", job_key="hot"))
    hipq.enqueue_many(jobs)
    HandWorker.crashed()
    session.begin()
    session(lock_account)
    refused = RefusedRows("recover_lost")

    def recover() -> int:
        return recovery.recover_lost(get_instance(), refused=refused)

    in_time(recover)
    first = Job.objects.in_error().count()

    def is_done() -> bool:
        recover()
        return Job.objects.running().count() == 1

    eventually(is_done, "the others are found")

    assert first > 150
    assert list(Job.objects.running().values_list("job_key", flat=True)) == ["hot"]


@pytest.fixture
def suspect(transactional_db: None) -> Job:
    """A job that has lost two workers, and may run again."""
    suspect = hipq.enqueue("echo", job_key="suspect")
    for _ in range(2):
        HandWorker.crashed()
        recovery.recover_lost(get_instance())
        Queue.objects.update(paused=True)
        HandWorker().work()  # it decides
        Queue.objects.update(paused=False)
    return suspect


def kinds_of(job: Job) -> list[str]:
    return list(job.attempts.order_by("attempt").values_list("kind", flat=True))


@pytest.mark.postgres
def test_who_is_to_blame_does_not_depend_on_a_trigger_that_waits_for_a_lock(
    counting: None, suspect: Job, session: Session
) -> None:
    for key in ACCOUNTS:
        hipq.enqueue("echo", job_key=key)
    HandWorker.crashed()
    count_when("NEW.state = 'error'")
    session.begin()
    session(lock_account)
    refused = RefusedRows("recover_lost")

    def recover() -> int:
        return recovery.recover_lost(get_instance(), refused=refused)

    moved = [recover(), recover()]
    session.roll_back()
    eventually(lambda: recover() == 2, "the job that waited, and the suspect")

    kinds = dict(Attempt.objects.exclude(job=suspect).values_list("job__job_key", "kind"))
    assert moved == [4, 0]
    assert kinds == dict.fromkeys(ACCOUNTS, "bystander")
    assert kinds_of(suspect) == ["worker_lost"] * 3


def test_who_is_to_blame_does_not_depend_on_a_row_that_somebody_has_locked(
    suspect: Job, session: Session
) -> None:
    jobs = [hipq.enqueue("echo") for _ in range(2)]
    HandWorker.crashed()
    lock(session, jobs[0])

    during = recovery.recover_lost(get_instance())
    session.roll_back()
    after = recovery.recover_lost(get_instance())

    assert (during, after) == (1, 2)
    assert [kinds_of(job) for job in jobs] == [["bystander"]] * 2
    assert kinds_of(suspect) == ["worker_lost"] * 3


def test_who_is_to_blame_does_not_depend_on_when_a_leave_ends(
    suspect: Job, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that was left alone may be free again while the others are taken over."""
    job, left = hipq.enqueue("echo"), RefusedRows("recover_lost")
    HandWorker.crashed()
    passing = Passing(monkeypatch)
    left.move([job.pk], _locked_out)
    take_over = recovery._take_over

    def let_it_end(*args: Any) -> Any:
        passing.seconds += LOCKED_SECONDS
        return take_over(*args)

    monkeypatch.setattr(recovery, "_take_over", let_it_end)
    during = recovery.recover_lost(get_instance(), refused=left)
    after = recovery.recover_lost(get_instance(), refused=left)

    assert (during, after) == (0, 2)
    assert (kinds_of(job), kinds_of(suspect)) == (["bystander"], ["worker_lost"] * 3)


def _locked_out(_: object) -> int:
    raise OperationalError from psycopg.errors.LockNotAvailable()


def test_a_suspect_waits_five_minutes_for_a_row_that_stays_locked(
    suspect: Job, session: Session
) -> None:
    job = hipq.enqueue("echo")
    HandWorker.crashed()
    lock(session, job)

    at_first = recovery.recover_lost(get_instance())
    long_ago = clock.now("default") - recovery.BLAME - timedelta(minutes=1)
    Worker.objects.filter(state=Worker.State.LOST).update(heartbeat_time=long_ago)
    at_last = recovery.recover_lost(get_instance())

    assert (at_first, at_last) == (0, 1)
    assert kinds_of(suspect) == ["worker_lost"] * 3


@pytest.mark.postgres
def test_early_answers_whose_triggers_wait_for_locks_hide_no_others(
    counting: None, declare: Declare, session: Session
) -> None:
    """Not even many, which are tried again and again: each has its turn."""
    declare("asked")(wait)
    keys = early_of(16)
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO account (id) VALUES " + ", ".join(f"('{k}')" for k in keys[:8]))
    count_when("NEW.state = 'final'")
    session.begin()
    session(lambda: connection.cursor().execute("UPDATE account SET done = done"))
    answers = early_answers.EarlyAnswers(get_instance())

    match_until(answers, 8)
    during = ended_keys()
    session.roll_back()
    match_until(answers, 16)

    assert during == sorted(keys[8:])


@pytest.mark.postgres
def test_a_rank_whose_trigger_waits_for_a_lock_keeps_no_other(
    counting: None, session: Session
) -> None:
    for n, key in enumerate(ACCOUNTS):
        hipq.enqueue("echo", job_key=key, priority=n)
    count_when("NEW.rank <> OLD.rank")
    Queue.objects.update(order="priority")
    session.begin()
    session(lock_account)

    changed = reranking.continue_ranking(get_instance())
    session.roll_back()

    assert (changed, Queue.objects.get().is_ranked) == (4, True)


@pytest.mark.postgres
def test_an_early_answer_that_somebody_has_locked_stops_only_its_job(session: Session) -> None:
    answer = hipq.complete("ask", "hot", "early")
    for key in ACCOUNTS:
        hipq.enqueue("ask" if key == "hot" else "echo", job_key=key)
    worker = HandWorker()
    session.begin()
    session(lambda: Answer.objects.select_for_update().get(pk=answer.pk))

    for _ in range(3):
        worker.work()
    before = ended_keys()
    session.roll_back()
    work_until(worker, ACCOUNTS)

    assert before == sorted(ACCOUNTS[1:])
    assert Job.objects.get(job_key="hot").result == "early"
