"""Results whose statement the server cancels, as by a `statement_timeout` of the project's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


MANY = """
CREATE FUNCTION refuse_many() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF (SELECT count(*) FROM changed WHERE outcome = 'succeeded') > 3 THEN
        PERFORM pg_cancel_backend(pg_backend_pid()), pg_sleep(60);
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER refuse_many AFTER UPDATE ON hipq_job REFERENCING NEW TABLE AS changed
FOR EACH STATEMENT EXECUTE FUNCTION refuse_many()
"""


@pytest.fixture
def tiring() -> Iterator[None]:
    """Let the server cancel each statement by which more than three jobs succeed, and no other."""
    with connection.cursor() as cursor:
        cursor.execute(MANY)
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP FUNCTION refuse_many() CASCADE")


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


@pytest.mark.usefixtures("tiring")
def test_results_that_take_too_long_together_are_written_in_smaller_parts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    numbers = [str(number) for number in range(12)]
    worker, cancelled = executed(numbers), Cancelled()

    with connection.execute_wrapper(cancelled):
        for _ in range(12):
            worker.save()

    assert cancelled.count >= 2  # of a dozen, and of six
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
