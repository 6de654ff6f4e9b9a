"""Whatever a handler does, its job has an end, its thread lives on, and its neighbours are well."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

import hipq_django as hipq
from hipq_django.conf.instances import get_instance
from hipq_django.database.isolation import FAULT_PAUSE
from hipq_django.maintenance import recovery
from hipq_django.models import Attempt, Job, Queue
from hipq_django.models.catalog import get_queue
from tests.concurrency.conftest import Refuse
from tests.concurrency.sessions import PATIENCE_SECONDS
from tests.declaring import Declare
from tests.hand_worker import HandWorker
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
    "frozen": raising(FrozenError(7)),
    "frozen later": raise_frozen_later,
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
    }
    for name in errors:
        declare(name, retry=hipq.Fixed(0, max_attempts=2, only=kinds))(MISCHIEF[name])
        hipq.enqueue(name)

    apply_by_status(crew)

    found = {job.job_type.name: (job.state, job.attempt, job.error) for job in Job.objects.all()}
    assert found == {name: ("final", 2, error) for name, error in errors.items()}
    for attempt in Attempt.objects.filter(attempt=1, job__job_type__name__startswith="frozen"):
        assert f"in {MISCHIEF[attempt.job.job_type.name].__name__}" in attempt.traceback


def begin_and_forget(job: Job) -> str:
    transaction.atomic().__enter__()
    Queue.objects.create(name="left_open")
    return "done"


def turn_autocommit_off(job: Job) -> str:
    connection.set_autocommit(False)
    Queue.objects.create(name="left_open")
    return "done"


LEFT_OPEN = "OpenTransactionError: job type 'forgetful' left a transaction"


@pytest.mark.parametrize(
    ("handler", "error"),
    [
        (begin_and_forget, LEFT_OPEN),
        (turn_autocommit_off, LEFT_OPEN),
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


# What belongs to a claim


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
