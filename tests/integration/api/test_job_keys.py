"""The job key: unique among the live jobs of a type; what happens when it is taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import IntegrityError, OperationalError, connection, transaction

import hipq_django as hipq
from hipq_django.domain.drafts import OnConflict
from hipq_django.models import Job
from tests.declaring import Declare
from tests.running import run_due_jobs

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]


def live(key: str = "k") -> list[Job]:
    return list(Job.objects.live().filter(job_key=key))


def test_a_second_live_job_with_the_key_is_refused() -> None:
    """T6."""
    first = hipq.enqueue("ask", job_key="k")

    with pytest.raises(hipq.DuplicateJobKeyError) as caught:
        hipq.enqueue("ask", job_key="k")

    assert caught.value.job == first
    assert f"job type 'ask' has a live job with key 'k': job {first.pk} is initial" in str(
        caught.value
    )
    assert live() == [first]


@pytest.mark.parametrize("state", ["running", "error", "retry"])
def test_the_key_is_taken_as_long_as_the_job_lives(state: str, declare: Declare) -> None:
    """T6."""
    job = hipq.enqueue("ask", job_key="k")
    run_due_jobs()
    if state != "running":
        hipq.fail("ask", "k", error="no")
    if state == "retry":
        Job.objects.filter(pk=job.pk).update(state="retry")

    with pytest.raises(hipq.DuplicateJobKeyError, match=f"is {state}"):
        hipq.enqueue("ask", job_key="k")


def test_the_database_itself_refuses_the_second_key() -> None:
    """T6: a constraint, not a look-up."""
    one, other = hipq.enqueue("ask", job_key="a"), hipq.enqueue("ask", job_key="b")

    with pytest.raises(IntegrityError), transaction.atomic():
        Job.objects.filter(pk=other.pk).update(job_key=one.job_key)


def test_a_caught_duplicate_leaves_the_transaction_usable() -> None:
    hipq.enqueue("ask", job_key="k")

    with transaction.atomic():
        with pytest.raises(hipq.DuplicateJobKeyError):
            hipq.enqueue("ask", job_key="k")
        hipq.enqueue("ask", job_key="other")

    assert len(live("other")) == 1


# on_conflict="return"


@pytest.mark.parametrize("on_conflict", ["return", "replace"])
def test_jobs_without_key_never_conflict(on_conflict: OnConflict) -> None:
    one = hipq.enqueue("ask", on_conflict=on_conflict)
    other = hipq.enqueue("ask", on_conflict=on_conflict)

    assert one != other
    assert len(live("NONE")) == 2


# on_conflict="replace"


def waiting() -> Job:
    return hipq.enqueue("ask", {"n": 1}, job_key="k", priority=7)


def retrying() -> Job:
    job = waiting()
    run_due_jobs()
    hipq.fail("ask", "k", error="no")
    Job.objects.filter(pk=job.pk).update(state="retry")
    return job


@pytest.mark.parametrize("make", [waiting, retrying])
def test_replace_leaves_one_live_job_with_the_new_values(make: Callable[[], Job]) -> None:
    old = make()

    new = hipq.enqueue("ask", {"n": 2}, job_key="k", on_conflict="replace")

    old.refresh_from_db()
    assert (old.state, old.outcome) == ("final", "cancelled")
    assert live() == [new]
    assert (new.job_data, new.priority) == ({"n": 2}, 100)


def test_replace_is_refused_while_the_old_job_is_running() -> None:
    old = waiting()
    run_due_jobs()

    with pytest.raises(hipq.DuplicateJobKeyError, match="is running") as caught:
        hipq.enqueue("ask", {"n": 2}, job_key="k", on_conflict="replace")

    assert caught.value.job == old
    assert [job.state for job in live()] == ["running"]


@contextmanager
def connection_lost_at_insert(number: int) -> Iterator[None]:
    """Let the given insert of a job, counted from 1, fail as it does when the server is gone."""
    inserts = 0

    def execute(run: Any, sql: str, *arguments: Any) -> Any:
        nonlocal inserts
        inserts += sql.startswith(("INSERT INTO hipq_job ", "CALL hipq_enqueue"))
        if inserts == number:
            raise OperationalError("server closed the connection unexpectedly")
        return run(sql, *arguments)

    with connection.execute_wrapper(execute):
        yield


@pytest.mark.django_db(transaction=True)
def test_a_replace_that_breaks_off_loses_neither_job() -> None:
    """T1: the old job is gone only together with the new one's arrival."""
    old = waiting()

    with pytest.raises(OperationalError), connection_lost_at_insert(2):
        hipq.enqueue("ask", {"n": 2}, job_key="k", on_conflict="replace")

    assert live() == [old]


@pytest.mark.parametrize("value", ["Raise", "ignore", 5, ["raise"]])
def test_any_other_way_to_treat_a_conflict_is_refused(value: Any) -> None:
    with pytest.raises(hipq.InvalidJobError, match=r"on_conflict .* is unknown"):
        hipq.enqueue("ask", on_conflict=value)

    assert Job.objects.count() == 0
