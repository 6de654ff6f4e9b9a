"""Whatever a handler does, its job has an end, its thread lives on, and its neighbours are well."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Callable, Iterator
from math import inf
from typing import Any, NoReturn

import pytest
from asgiref.sync import SyncToAsync, sync_to_async
from django.db import IntegrityError, connection, connections, transaction
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext

import hipq_django as hipq
from hipq_django.answers.intake import Intake
from hipq_django.conf.instances import get_instance
from hipq_django.database import isolation
from hipq_django.database.isolation import FAULT_PAUSE, Isolation
from hipq_django.maintenance import recovery
from hipq_django.models import Answer, Attempt, Job, Queue
from hipq_django.models.catalog import get_queue
from hipq_django.sources import Received
from hipq_django.sources.settings import SourceSettings
from tests.concurrency.conftest import Refuse
from tests.concurrency.sessions import PATIENCE_SECONDS
from tests.declaring import Declare
from tests.hand_worker import HandWorker
from tests.integration.conftest import ConfigureQueue
from tests.passing import Passing
from tests.threads import Crew, working

pytestmark = pytest.mark.django_db(transaction=True)

ROUNDS = 50


class UnspeakableError(Exception):
    """Its text cannot be had."""

    def __str__(self) -> str:
        raise SystemExit("no")


class UnaskableError(Exception):
    """Neither whether it is true nor how long it is can be asked."""

    def __bool__(self) -> NoReturn:
        raise SystemExit("no")

    __len__ = __bool__


@dataclasses.dataclass(frozen=True)
class FrozenError(Exception):
    """Nothing of it can be set, not even its traceback."""

    code: int


class _Unhashable(type):
    """The type of classes that no table can hold."""

    def __hash__(cls) -> NoReturn:
        raise SystemExit("no")

    @property
    def __name__(cls) -> NoReturn:  # type: ignore[override]  # nor called by their names
        raise SystemExit("no")


class UnknowableError(Exception, metaclass=_Unhashable):
    """Not even its class can be named."""


class HastySnooze(hipq.Snooze):
    """A subclass that forgets its seconds."""

    def __init__(self) -> None:
        Exception.__init__(self, "soon")


class Sticky:
    """Data that a handler leaves in its job, and that nobody can look at."""

    def __iter__(self) -> NoReturn:
        raise KeyboardInterrupt

    __str__ = __repr__ = __iter__


def raising(error: BaseException | type[BaseException]) -> Callable[[Job], NoReturn]:
    def handler(job: Job) -> NoReturn:
        raise error

    return handler


def raise_from_unaskable(job: Job) -> NoReturn:
    raise OSError("down") from UnaskableError()


def raise_beside_unaskable(job: Job) -> NoReturn:
    try:
        raise UnaskableError
    except UnaskableError:
        raise OSError("down")  # noqa: B904 - it is what it happened beside


async def raise_frozen_later(job: Job) -> NoReturn:
    raise FrozenError(7)


def spoil_the_copy(job: Job) -> NoReturn:
    job.job_data = Sticky()
    raise OSError("down")


MISCHIEF: dict[str, Callable[[Job], Any]] = {
    "interrupts": raising(KeyboardInterrupt),
    "leaves": raising(SystemExit(3)),
    "snoozes": raising(HastySnooze),
    "whispers": raising(UnspeakableError),
    "unaskable": raising(UnaskableError),
    "from unaskable": raise_from_unaskable,
    "beside unaskable": raise_beside_unaskable,
    "frozen": raising(FrozenError(7)),
    "frozen later": raise_frozen_later,
    "unknowable": raising(UnknowableError),
    "spoils its copy": spoil_the_copy,
}


@pytest.fixture
def crew() -> Iterator[Crew]:
    """A worker with one thread: if it dies, nothing runs any more."""
    with working(Crew(1)) as crew:
        yield crew


def apply_by_status(crew: Crew) -> None:
    for _ in range(ROUNDS):
        crew.scheduler.run_once()
        crew.pool.await_done(PATIENCE_SECONDS)
        if not (crew.batch or crew.scheduler.moved):
            return


def test_a_handler_ends_its_job_and_not_its_thread(crew: Crew, declare: Declare) -> None:
    for name, handler in MISCHIEF.items():
        declare(name, sensitive=["card"])(handler)
        hipq.enqueue(name, {"card": "4100"})
        hipq.enqueue("echo")

    apply_by_status(crew)

    rows = Job.objects.exclude(job_type__name="echo")
    found = {
        row.job_type.name: (row.outcome, row.attempts.count(), bool(row.error)) for row in rows
    }
    assert found == dict.fromkeys(MISCHIEF, ("failed", 1, True))
    assert Job.objects.filter(outcome="succeeded").count() == len(MISCHIEF)


def test_a_retry_handler_ends_its_job_and_not_its_thread(crew: Crew, declare: Declare) -> None:
    for name, handler in MISCHIEF.items():
        declare(name)(lambda job: 1 / 0).on_error(handler)
        hipq.enqueue(name)
        hipq.enqueue("echo")

    apply_by_status(crew)

    rows = Job.objects.exclude(job_type__name="echo")
    found = {row.job_type.name: (row.outcome, str(row.error)[:19]) for row in rows}
    assert found == dict.fromkeys(MISCHIEF, ("failed", "ZeroDivisionError: "))
    assert Job.objects.filter(outcome="succeeded").count() == len(MISCHIEF)


def test_an_exception_that_cannot_be_treated_as_usual_is_retried_as_what_it_is(
    crew: Crew, declare: Declare
) -> None:
    kinds = (FrozenError, UnaskableError, OSError)
    errors = {
        "frozen": "FrozenError: 7",
        "frozen later": "FrozenError: 7",
        "unaskable": "exception UnaskableError",
        "from unaskable": "OSError: down",
        "beside unaskable": "OSError: down",
    }
    for name in errors:
        declare(name, retry=hipq.Fixed(0, max_attempts=2, only=kinds))(MISCHIEF[name])
        hipq.enqueue(name)

    apply_by_status(crew)

    found = {job.job_type.name: (job.state, job.attempt, job.error) for job in Job.objects.all()}
    assert found == {name: ("final", 2, error) for name, error in errors.items()}
    for attempt in Attempt.objects.filter(attempt=1):
        assert f"in {MISCHIEF[attempt.job.job_type.name].__name__}" in attempt.traceback


def begin_and_forget(job: Job) -> str:
    transaction.atomic().__enter__()
    Queue.objects.create(name="left_open")
    return "done"


def begin_by_hand(job: Job) -> str:
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
    Queue.objects.create(name="left_open")
    return "done"


def turn_autocommit_off(job: Job) -> str:
    connection.set_autocommit(False)
    Queue.objects.create(name="left_open")
    return "done"


def begin_and_interrupt(job: Job) -> NoReturn:
    begin_and_forget(job)
    raise KeyboardInterrupt


LEFT_OPEN = "OpenTransactionError: job type 'forgetful' left a transaction"


@pytest.mark.parametrize(
    ("handler", "error"),
    [
        (begin_and_forget, LEFT_OPEN),
        (begin_by_hand, LEFT_OPEN),
        (turn_autocommit_off, LEFT_OPEN),
        (begin_and_interrupt, "exception KeyboardInterrupt"),
    ],
)
def test_a_transaction_that_a_handler_leaves_open_is_rolled_back_and_fails_its_job(
    crew: Crew, declare: Declare, handler: Callable[[Job], Any], error: str
) -> None:
    """What later jobs of the thread write would be part of it."""
    declare("forgetful")(handler)
    declare("writes")(lambda job: Queue.objects.create(name="written").pk)
    job, other = hipq.enqueue("forgetful"), hipq.enqueue("writes")

    apply_by_status(crew)

    job.refresh_from_db()
    other.refresh_from_db()
    assert (job.outcome, other.outcome) == ("failed", "succeeded")
    assert str(job.error).startswith(error)
    assert set(Queue.objects.exclude(name="default").values_list("name", flat=True)) == {"written"}


def my_session() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


@pytest.fixture
def _threads_of_async_code_leave_no_connection() -> Iterator[None]:
    yield
    SyncToAsync.single_thread_executor.submit(connections.close_all).result(PATIENCE_SECONDS)


@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has no server")
@pytest.mark.usefixtures("_threads_of_async_code_leave_no_connection")
def test_a_handler_with_a_loop_of_its_own_gets_a_new_connection_after_a_restart(
    crew: Crew, declare: Declare
) -> None:
    """Its statements are sent in a thread that all such handlers share."""
    declare("loops")(lambda job: asyncio.run(sync_to_async(my_session)()))
    jobs = []
    for _ in range(3):
        jobs.append(hipq.enqueue("loops"))
        apply_by_status(crew)
        jobs[-1].refresh_from_db()
        if len(jobs) == 1:
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_terminate_backend(%s)", [jobs[0].result])

    assert [job.outcome for job in jobs] == ["succeeded", "failed", "succeeded"]


def test_a_result_that_is_too_large_fails_its_job(crew: Crew, declare: Declare) -> None:
    declare("large")(lambda job: "x" * 16_000_000)
    job, innocent = hipq.enqueue("large"), hipq.enqueue("echo")

    apply_by_status(crew)

    job.refresh_from_db()
    innocent.refresh_from_db()
    assert job.error == (
        "ResultError: the result of 'large' has 16,000,002 bytes as JSON, but at most "
        "16,000,000 are stored; store it elsewhere and return a reference to it."
    )
    assert innocent.outcome == "succeeded"


def test_what_the_database_refuses_alone_fails_alone(declare: Declare, refuse: Refuse) -> None:
    """It is no outage: the others are written, whatever they were in one batch with."""
    gate = threading.Event()
    declare("gated")(lambda job: gate.wait(PATIENCE_SECONDS))
    Queue.objects.update_or_create(name="default", defaults={"throttle_limit": 3})
    refuse("NEW.state = 'final' AND NEW.job_key = 'refused' AND NEW.outcome = 'succeeded'")
    keys = ["a", "refused", "b", "c", "d"]
    jobs = [hipq.enqueue("gated", job_key=key) for key in keys]

    with working(Crew(3)) as crew:
        crew.scheduler.run_once()
        gate.set()
        apply_by_status(crew)

    outcomes = {job.job_key: Job.objects.get(pk=job.pk).outcome for job in jobs}
    assert outcomes == {key: "failed" if key == "refused" else "succeeded" for key in keys}
    assert "too much" in str(Job.objects.get(job_key="refused").error)


@pytest.mark.parametrize("limit", [0, 3])
def test_a_job_that_the_database_refuses_to_start_stops_only_itself(
    refuse_or_skip: Refuse, limit: int
) -> None:
    """That a claim is passed over is no sign that others have declared the worker lost."""
    get_queue("default", "a")
    Queue.objects.update(throttle_limit=limit)
    refuse_or_skip("NEW.state = 'running' AND NEW.job_key LIKE 'refused%'")
    names = ["a", "refused 1", "b", "refused 2", *"cdefg"]
    jobs = {name: hipq.enqueue("echo", job_key=name, queue="a") for name in names}
    other = hipq.enqueue("echo", queue="b")
    worker = HandWorker()

    for _ in range(9):
        worker.work()

    others = [other, *(job for name, job in jobs.items() if "refused" not in name)]
    assert {Job.objects.get(pk=job.pk).outcome for job in others} == {"succeeded"}
    assert Job.objects.get(pk=jobs["refused 2"].pk).attempt == 0
    problem = Queue.objects.get(name="a").throttler_problem
    assert f"the database does not let job {jobs['refused 1'].pk} start: " in problem
    skipped = "the row was not changed: a trigger of the project may skip it"
    assert problem.endswith(("too much", skipped))


def test_a_problem_that_only_one_worker_has_is_logged_once(
    declare: Declare, configure_queue: ConfigureQueue, caplog: pytest.LogCaptureFixture
) -> None:
    """The other one, for which all is well, writes so again and again."""
    broken = [True]

    def throttler(*args: Any) -> list[hipq.Run]:
        if broken[0]:
            raise LookupError("no such package here")
        return [hipq.Run() for _ in args[-1]]

    configure_queue(throttler)
    bad, good = HandWorker(), HandWorker()

    for _ in range(10):
        hipq.enqueue("echo")
        bad.work()
        broken[0] = False
        good.work()
        broken[0] = True

    assert Job.objects.filter(outcome="succeeded").count() == 10
    assert caplog.text.count("event=queue_blocked") == 1


def test_many_jobs_that_the_database_refuses_hide_nobody_behind_them(
    refuse: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not all are looked for in one pass, which would be hundreds of statements."""
    monkeypatch.setattr(isolation, "MOST_SPENT", 0.0)
    refuse("NEW.state = 'running' AND NEW.job_key LIKE 'refused%'")
    hipq.enqueue_many([hipq.NewJob("echo", job_key=f"refused {n}") for n in range(10)])
    behind = hipq.enqueue("echo")
    worker = HandWorker(threads=4)

    for _ in range(20):
        worker.work()

    assert Job.objects.get(pk=behind.pk).outcome == "succeeded"


def test_a_response_that_the_database_refuses_to_hand_out_stops_only_itself(
    declare: Declare, refuse_or_skip: Refuse
) -> None:
    declare("asks")(lambda job: hipq.WAIT).on_response(lambda job, response: response)
    jobs = [hipq.enqueue("asks", job_key=key) for key in ("a", "refused", "b")]
    HandWorker().work()
    for job in jobs:
        hipq.complete("asks", job.job_key, "yes")
    behind = hipq.enqueue("echo")
    refuse_or_skip("NEW.phase = 'response' AND NEW.job_key = 'refused'")
    worker = HandWorker()

    for _ in range(4):
        worker.work()

    rows = [Job.objects.get(pk=job.pk).outcome for job in (*jobs, behind)]
    assert rows == ["succeeded", "NONE", "succeeded", "succeeded"]
    assert f"job {jobs[1].pk} start" in Queue.objects.get().throttler_problem


def test_a_result_that_is_refused_as_a_failure_too_is_named_once_and_tried_ever_more_seldom(
    refuse: Refuse, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is kept: whatever refuses it may be mended before the deadline."""
    refuse("OLD.state = 'running' AND NEW.progress_message <> 'mended'")
    job = hipq.enqueue("echo")
    worker, time = HandWorker(), Passing(monkeypatch)
    worker.run_pass()
    worker.execute()

    tries = 0
    for _ in range(240):
        time.seconds += 0.25
        with CaptureQueriesContext(connection) as statements:
            worker.save()
        tries += bool(statements.captured_queries)
    kept = worker.batch.ids
    Job.objects.update(progress_message="mended")
    time.seconds += FAULT_PAUSE
    worker.save()

    assert [getattr(one, "event", "") for one in caplog.records].count("row_left_alone") == 1
    assert 1 < tries < 5
    assert kept == [job.pk]
    job.refresh_from_db()
    assert job.outcome == "succeeded"


# What the database passes over without an error


def test_a_result_that_the_database_skips_is_no_success(
    skip: Refuse, caplog: pytest.LogCaptureFixture
) -> None:
    finished: list[int] = []

    def note(job: Job, **_: Any) -> None:
        finished.append(job.pk)

    skip("NEW.outcome = 'succeeded' AND NEW.job_key = 'skipped'")
    jobs = [hipq.enqueue("echo", job_key=key) for key in ("a", "skipped", "b")]
    hipq.signals.job_finished.connect(note)
    try:
        worker = HandWorker()
        worker.work()
        worker.work()
    finally:
        hipq.signals.job_finished.disconnect(note)

    outcomes = [Job.objects.get(pk=job.pk).outcome for job in jobs]
    assert outcomes == ["succeeded", "failed", "succeeded"]
    assert "SkippedRowError: the row was not changed" in str(Job.objects.get(pk=jobs[1].pk).error)
    assert sorted(finished) == [job.pk for job in jobs]


def test_what_a_block_of_finishing_wrote_is_undone_if_the_database_skips_the_end(
    declare: Declare, skip: Refuse
) -> None:
    finished: list[int] = []

    @declare("finishes")
    def finishes(job: Job) -> None:
        with hipq.finishing(job, result="done"):
            get_queue("default", "written_in_the_block")

    def note(job: Job, **_: Any) -> None:
        finished.append(job.pk)

    skip("NEW.outcome = 'succeeded'")
    job = hipq.enqueue("finishes")
    hipq.signals.job_finished.connect(note)
    try:
        HandWorker().work()
        HandWorker().work()
    finally:
        hipq.signals.job_finished.disconnect(note)

    job.refresh_from_db()
    assert not Queue.objects.filter(name="written_in_the_block").exists()
    assert (job.outcome, job.attempt, finished) == ("failed", 1, [job.pk])
    assert "SkippedRowError: the row was not changed" in str(job.error)


SKIPPED_EFFECTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "result": ("asks", {"response": 1}, "NEW.outcome = 'succeeded'"),
    "handler": ("handles", {"response": 1}, "NEW.has_pending_answer <> OLD.has_pending_answer"),
    "error": ("asks", {"error": 1}, "NEW.state = 'error'"),
}


@pytest.mark.parametrize("effect", SKIPPED_EFFECTS)
def test_messages_whose_effect_the_database_skips_are_refused_together_and_kept_alone(
    declare: Declare, skip: Refuse, effect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source hands each of a refused batch over by itself."""
    job_type, payload, condition = SKIPPED_EFFECTS[effect]
    declare("asks")(lambda job: hipq.WAIT)
    declare("handles")(lambda job: hipq.WAIT).on_response(lambda job, response: response)
    keys = ["a", "skipped", "b"]
    jobs = [hipq.enqueue(job_type, job_key=key) for key in keys]
    HandWorker().work()
    skip(f"{condition} AND NEW.job_key = 'skipped'")
    answers = [hipq.NewAnswer(job_type, key, **payload) for key in keys]
    source = SourceSettings("bank", "no.source", f"{__name__}.{as_it_is.__name__}", {}, 1)
    intake = Intake(get_instance(), source)

    with pytest.raises(IntegrityError):
        hipq.receive_many(answers)
    assert not Answer.objects.exists()
    received = [Received(b"", receipt=answer) for answer in answers]
    monkeypatch.setattr(isolation, "MOST_SPENT", inf)
    Isolation[int]("consume").move(
        range(3),
        lambda some: intake.take_all([received[n] for n in some]) or 0,  # type: ignore[func-returns-value]  # None, as it says
        lambda n, error: intake.keep_refused(received[n], error),
    )

    assert [(a.job_id, a.kind == "malformed") for a in Answer.objects.order_by("pk")] == [
        (jobs[0].pk, False),
        (None, True),
        (jobs[2].pk, False),
    ]
    jobs[1].refresh_from_db()
    assert (jobs[1].state, jobs[1].has_pending_answer) == ("running", False)


def as_it_is(received: Received) -> Any:
    """Return the answer that a test hands over as a message."""
    return received.receipt


def test_a_callback_whose_effect_the_database_skips_is_put_off(
    declare: Declare, skip: Refuse, client: Client, rf: RequestFactory
) -> None:
    urls: list[str] = []

    @declare("asks")
    def asks(job: Job) -> object:
        urls.append(hipq.callback_url(job, request=rf.get("/")))
        return hipq.WAIT

    job = hipq.enqueue("asks")
    HandWorker().work()
    skip("NEW.state = 'error'")

    reply = client.post(urls[0], {"error": "no"}, content_type="application/json")

    job.refresh_from_db()
    assert (reply.status_code, job.state, Answer.objects.count()) == (503, "running", 0)


# What belongs to a claim


@pytest.mark.parametrize(("limit", "handler"), [(0, "answered"), (3, "handled")])
def test_an_early_answer_that_the_database_refuses_stops_only_its_job(
    declare: Declare, refuse: Refuse, limit: int, handler: str
) -> None:
    declare("answered")(lambda job: hipq.WAIT)
    declare("handled")(lambda job: hipq.WAIT).on_response(lambda job, response: response)
    get_queue("default", "q")
    Queue.objects.update(throttle_limit=limit)
    keys = ["refused", "a", "b"]
    for key in keys:
        hipq.complete(handler, key, key)
    jobs = [hipq.enqueue(handler, job_key=key, queue="q") for key in keys]
    behind = hipq.enqueue("echo", queue="q")
    refuse("NEW.state <> 'initial' AND NEW.job_key = 'refused'")
    worker = HandWorker()

    for _ in range(6):
        worker.work()

    rows = [Job.objects.get(pk=job.pk) for job in (*jobs, behind)]
    assert [row.outcome for row in rows] == ["NONE", "succeeded", "succeeded", "succeeded"]
    assert [row.attempt for row in rows[1:]] == [1, 1, 1]
    assert f"job {jobs[0].pk} start" in Queue.objects.get(name="q").throttler_problem


def test_a_job_that_may_not_be_put_off_stops_only_itself(
    refuse_or_skip: Refuse, frozen_time: Any, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = [
        hipq.enqueue("echo", job_key=key, time_windows=["11:00-13:00"]) for key in ("refused", "a")
    ]
    behind = hipq.enqueue("echo", job_key="b")
    Job.objects.filter(pk__in=[job.pk for job in jobs]).update(time_windows=["01:00-02:00"])
    refuse_or_skip("NEW.job_key = 'refused'")
    worker = HandWorker()

    for _ in range(6):
        worker.work()

    behind.refresh_from_db()
    jobs[1].refresh_from_db()
    assert behind.outcome == "succeeded"
    assert jobs[1].scheduled_run_time > behind.scheduled_run_time
    assert f"job {jobs[0].pk} start" in Queue.objects.get().throttler_problem


def test_what_was_written_before_a_refusal_is_told(
    declare: Declare, skip: Refuse, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever alarms by the log must hear of the failures that are committed."""
    declare("fails")(lambda job: 1 / 0)
    jobs = [hipq.enqueue("fails", job_key=key) for key in ("a", "skipped", "b")]
    skip("NEW.state <> 'running' AND OLD.state = 'running' AND NEW.job_key = 'skipped'")
    worker = HandWorker()
    worker.work()
    worker.work()

    told = [one for one in caplog.records if getattr(one, "event", "") == "job_failed"]
    assert sorted(one.__dict__["job_id"] for one in told) == [jobs[0].pk, jobs[2].pk]
    assert worker.batch.ids == [jobs[1].pk]


BLOCKED = {
    "postgresql": "RAISE EXCEPTION 'card 41111111 is blocked'",
    "sqlite": "SELECT RAISE(ABORT, 'card 41111111 is blocked')",
}[connection.vendor]


@pytest.mark.parametrize("when", ["NEW.state = 'running'", "OLD.state = 'running'"])
def test_what_the_database_says_of_a_job_that_it_refuses_is_masked(
    declare: Declare, caplog: pytest.LogCaptureFixture, when: str
) -> None:
    declare("charge", sensitive=["card"])(lambda job: None)
    hipq.enqueue("charge", {"card": "41111111"})
    refuse, worker = Refuse(BLOCKED), HandWorker()
    refuse(when)
    try:
        worker.work()
        said = Queue.objects.get().throttler_problem
        worker.work()
    finally:
        refuse.end()

    assert "41111111" not in said + caplog.text


def test_what_the_database_says_of_a_takeover_that_it_refuses_is_not_quoted(
    declare: Declare, caplog: pytest.LogCaptureFixture
) -> None:
    declare("charge", sensitive=["card"])(lambda job: None)
    hipq.enqueue("charge", {"card": "41111111"})
    HandWorker.crashed()
    refuse = Refuse(BLOCKED)
    refuse("NEW.state = 'error'")
    try:
        recovery.recover_lost(get_instance())
    finally:
        refuse.end()

    assert "event=row_left_alone" in caplog.text
    assert "41111111" not in caplog.text
