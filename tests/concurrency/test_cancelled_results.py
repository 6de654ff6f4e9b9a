"""Results whose statement the server cancels, as by a `statement_timeout` of the project's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import OperationalError, connection

import hipq_django as hipq
from hipq_django.database.errors import CANCELLED_SECONDS, is_cancelled
from hipq_django.models import Job, Queue
from tests.concurrency.conftest import Refuse
from tests.hand_worker import HandWorker
from tests.passing import Passing

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]

QUICK = ["a", "b", "c", "d", "e"]


@pytest.fixture
def slow() -> Iterator[Refuse]:
    """Let the server cancel each statement that changes some rows, and no other.

    A `statement_timeout` would also cancel others, if the machine is slow.
    """
    slow = Refuse("PERFORM pg_cancel_backend(pg_backend_pid()), pg_sleep(60); RETURN NEW")
    yield slow
    slow.end()


@pytest.fixture
def tiring() -> Iterator[Refuse]:
    """Let each change of some rows take a fifth of a second."""
    tiring = Refuse("PERFORM pg_sleep(0.2); RETURN NEW")
    yield tiring
    tiring.end()


@contextmanager
def statement_timeout(seconds: float) -> Iterator[None]:
    """Let the server cancel what takes longer."""
    with connection.cursor() as cursor:
        cursor.execute(f"SET statement_timeout = '{seconds} s'")
        try:
            yield
        finally:
            cursor.execute("RESET statement_timeout")


def executed(keys: list[str]) -> HandWorker:
    """Return a worker that has executed a job for each key, and has written nothing."""
    for key in keys:
        hipq.enqueue("echo", job_key=key)
    worker = HandWorker()
    worker.run_pass()
    worker.execute()
    return worker


def keys(**values: str) -> set[str]:
    """Return the keys of the jobs with these values."""
    return set(Job.objects.filter(**values).values_list("job_key", flat=True))


def named(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the keys of the jobs whose results the log names."""
    said = [one.__dict__ for one in caplog.records]
    return [one["job_key"] for one in said if one.get("event") == "result_cancelled"]


class Cancelled:
    """Counts the statements that the server cancels."""

    count = 0

    def __call__(self, execute: Callable[..., Any], *rest: Any) -> Any:
        try:
            return execute(*rest)
        except OperationalError as error:
            self.count += is_cancelled(error)
            raise


@pytest.mark.parametrize("limit", [0, 6])
def test_a_result_that_is_cancelled_alone_fails_alone(
    slow: Refuse, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, limit: int
) -> None:
    Queue.objects.update_or_create(name="default", defaults={"throttle_limit": limit})
    worker, time = executed([*QUICK[:2], "slow", *QUICK[2:]]), Passing(monkeypatch)
    behind = hipq.enqueue("echo", job_key="behind")
    slow("NEW.job_key = 'slow' AND NEW.outcome = 'succeeded'")

    for _ in range(4):
        worker.work()
        time.seconds += 1
    before = keys(outcome="succeeded"), keys(state="running")
    time.seconds += CANCELLED_SECONDS
    worker.work()

    assert before == ({*QUICK, behind.job_key}, {"slow"})
    assert named(caplog) == ["slow"]
    assert "canceling statement" in Job.objects.get(job_key="slow", outcome="failed").error
    assert not worker.batch


def test_results_that_take_too_long_together_are_written_in_smaller_parts(
    tiring: Refuse, caplog: pytest.LogCaptureFixture
) -> None:
    numbers = [str(number) for number in range(12)]
    worker, cancelled = executed(numbers), Cancelled()
    tiring("NEW.outcome = 'succeeded'")

    with statement_timeout(1), connection.execute_wrapper(cancelled):
        for _ in range(12):
            worker.save()

    assert cancelled.count >= 2  # a dozen take 2.4 s, and six 1.2 s
    assert keys(outcome="succeeded") == set(numbers)
    assert named(caplog) == []


def test_a_pass_loses_the_time_of_one_statement(slow: Refuse) -> None:
    worker = executed(QUICK)
    slow("NEW.outcome = 'succeeded'")

    lost = []
    for _ in range(4):
        cancelled = Cancelled()
        with connection.execute_wrapper(cancelled):
            worker.scheduler.persist_batch(seconds=0)
        lost.append(cancelled.count)

    assert lost == [1, 1, 1, 1]
    assert keys(state="running") == set(QUICK)


def test_a_result_is_kept_for_as_long_as_the_server_is_slow_with_everything(
    slow: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, time = executed(["slow"]), Passing(monkeypatch)
    slow("OLD.state = 'running'")

    for _ in range(4):
        worker.save()
        time.seconds += CANCELLED_SECONDS + 1
    slow.end()
    worker.save()

    assert keys(outcome="succeeded") == {"slow"}
    assert not worker.batch
