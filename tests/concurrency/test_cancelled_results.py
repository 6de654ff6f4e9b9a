"""Results whose statement the server cancels, as by a `statement_timeout` of the project's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

import hipq_django as hipq
from hipq_django.database.errors import CANCELLED_SECONDS
from hipq_django.models import Job, Queue
from tests.concurrency.conftest import Refuse
from tests.hand_worker import HandWorker
from tests.passing import Passing

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]

TIMEOUT_MILLISECONDS = 200
QUICK = ["a", "b", "c", "d", "e"]


@pytest.fixture
def slow() -> Iterator[Refuse]:
    """Let changes of some rows take longer than the server lets a statement take."""
    slow = Refuse("PERFORM pg_sleep(5); RETURN NEW")
    with connection.cursor() as cursor:
        cursor.execute(f"SET statement_timeout = {TIMEOUT_MILLISECONDS}")
    yield slow
    with connection.cursor() as cursor:
        cursor.execute("RESET statement_timeout")
    slow.end()


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


def is_long(statement: dict[str, str]) -> bool:
    """Return whether a statement has taken as long as the server lets one take."""
    return float(statement["time"]) >= TIMEOUT_MILLISECONDS / 1000 * 0.9


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
    assert "statement timeout" in Job.objects.get(job_key="slow", outcome="failed").error
    assert not worker.batch


def test_results_that_take_too_long_together_are_written_in_smaller_parts(
    slow: Refuse, caplog: pytest.LogCaptureFixture
) -> None:
    numbers = [str(number) for number in range(12)]
    worker, each = executed(numbers), Refuse("PERFORM pg_sleep(0.04); RETURN NEW")
    each("NEW.outcome = 'succeeded'")

    for _ in range(12):
        worker.save()
    each.end()

    assert keys(outcome="succeeded") == set(numbers)
    assert named(caplog) == []


def test_a_pass_loses_the_time_of_one_statement(slow: Refuse) -> None:
    worker = executed(QUICK)
    slow("NEW.outcome = 'succeeded'")

    lost = []
    for _ in range(4):
        with CaptureQueriesContext(connection) as statements:
            worker.scheduler.persist_batch(seconds=0)
        lost.append(sum(is_long(one) for one in statements.captured_queries))

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
