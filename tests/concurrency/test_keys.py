"""Several connections that want the same job key."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import pytest
from django.db import connection, transaction

import hipq_django as hipq
from hipq_django.domain.drafts import OnConflict
from hipq_django.domain.uniqueness import KEY_FIELDS
from hipq_django.models import Job
from tests.concurrency.sessions import Session, errors_of, run_together, wait_until_blocked
from tests.declaring import Declare
from tests.hand_worker import HandWorker

pytestmark = pytest.mark.django_db(transaction=True)

THREADS = 6
NEW, OTHER = hipq.NewJob("ask", job_key="k"), hipq.NewJob("ask", job_key="other")


def enqueue(on_conflict: OnConflict = "raise") -> Job:
    return hipq.enqueue("ask", job_key="k", on_conflict=on_conflict)


def enqueue_in_a_transaction() -> Job:
    with transaction.atomic():
        job = enqueue()
        hipq.enqueue("ask")
    return job


@pytest.mark.parametrize("step", [enqueue, enqueue_in_a_transaction])
def test_of_many_that_enqueue_a_key_one_wins(step: Callable[[], Job]) -> None:
    """T6."""
    results = run_together(*[step] * THREADS)

    (winner,) = [job for job in results if isinstance(job, Job)]
    errors = errors_of(results)
    assert all(isinstance(error, hipq.DuplicateJobKeyError) for error in errors), errors
    assert {error.job for error in errors} == {winner}  # type: ignore[attr-defined]  # each is a duplicate
    assert Job.objects.filter(job_key="k").get() == winner


CLIENTS = 8


@pytest.mark.parametrize("scope", KEY_FIELDS)
def test_of_many_that_enqueue_the_same_arguments_one_creates_the_job(
    declare: Declare, scope: Any
) -> None:
    index = declare.task("index", unique=scope)(lambda shop: shop)
    for shop in ("berlin", "paris", "rome"):
        results = run_together(*[lambda shop=shop: index.enqueue(shop)] * CLIENTS)

        assert errors_of(results) == []
        [job] = Job.objects.filter(job_data__shop=shop)
        assert set(results) == {job}
        assert [found.conflict for found in results if isinstance(found, Job)].count(False) == 1


def test_an_enqueue_while_the_job_that_has_its_place_is_claimed(
    declare: Declare, rounds: int
) -> None:
    """Either the job was not claimed yet, and is returned, or another one waits."""
    index = declare.task("index", unique="waiting")(lambda shop: shop)
    for shop in map(str, range(rounds)):
        first, worker = index.enqueue(shop), HandWorker()

        results = run_together(worker.run_pass, partial(index.enqueue, shop))

        assert errors_of(results) == []
        second = results[1]
        assert isinstance(second, Job)
        assert second.conflict == (second == first)
        first.refresh_from_db()
        assert second == first or first.state == "running"
        assert Job.objects.filter(job_data__shop=shop, state="initial").count() <= 1


@pytest.mark.postgres
@pytest.mark.parametrize("many", [False, True])
def test_a_waiting_job_that_is_returned_does_not_start_before_the_commit(
    declare: Declare, session: Session, many: bool
) -> None:
    """Else it would not see what the transaction writes, and nothing would run after it."""
    index = declare.task("index", unique="waiting")(lambda shop: shop)
    first, worker = index.enqueue("berlin"), HandWorker()
    session.begin()
    [found] = session(partial(enqueue_again, index, many))

    during = worker.run_pass()
    session.commit()
    after = worker.run_pass()

    assert found == first
    assert found.conflict
    assert (during, after) == ([], [first])


@pytest.mark.postgres
@pytest.mark.parametrize("many", [False, True])
def test_another_job_waits_if_the_one_that_was_found_starts_meanwhile(
    declare: Declare, many: bool
) -> None:
    index = declare.task("index", unique="waiting")(lambda shop: shop)
    first, worker, session = index.enqueue("berlin"), HandWorker(), Session()
    started: list[list[Job]] = []

    def start_the_first(run: Any, sql: str, *arguments: Any) -> Any:
        found = run(sql, *arguments)
        if '"waiting_key" IN' in sql and not started:
            started.append(session(worker.run_pass))
        return found

    with transaction.atomic(), connection.execute_wrapper(start_the_first):
        [second] = enqueue_again(index, many)

    session.close()
    assert started == [[first]]
    assert not second.conflict
    assert Job.objects.get(state="initial") == second


def enqueue_again(index: Any, many: bool) -> list[Job]:
    if many:
        return hipq.enqueue_many([index.new("berlin")], on_conflict="return")
    return [index.enqueue("berlin")]


def test_of_many_that_replace_a_job_one_stays() -> None:
    """T6: exactly one live job, the others cancelled."""
    results = run_together(*[lambda: enqueue("replace")] * THREADS)

    assert errors_of(results) == []
    outcomes = sorted(Job.objects.values_list("outcome", flat=True))
    assert outcomes == ["NONE"] + ["cancelled"] * (THREADS - 1)


def test_two_batches_with_the_same_keys_in_opposite_order_do_not_break_each_other() -> None:
    """T6: one creates all of its jobs, the other is told which key is taken."""
    batch = [hipq.NewJob("ask", job_key=str(number)) for number in range(1_000)]

    results = run_together(
        lambda: hipq.enqueue_many(batch), lambda: hipq.enqueue_many(reversed(batch))
    )

    (error,) = errors_of(results)
    assert isinstance(error, hipq.DuplicateJobKeyError)
    assert Job.objects.count() == 1_000


@pytest.mark.postgres
@pytest.mark.parametrize("scope", KEY_FIELDS)
def test_two_batches_with_the_same_arguments_in_opposite_order_do_not_break_each_other(
    declare: Declare, session: Session, scope: Any
) -> None:
    """Both come to a job that somebody else has made and takes back."""
    index = declare.task("index", unique=scope)(lambda shop: shop)
    index.enqueue("first")  # else it is the job type that they wait for
    batch = [index.new(shop) for shop in ("rome", "paris", "berlin", "oslo", "bonn")]
    session.begin()
    session(lambda: hipq.enqueue_many(batch[1:-1]))

    def roll_back_when_both_wait() -> None:
        wait_until_blocked(2)
        session.roll_back()

    results = run_together(
        roll_back_when_both_wait,
        lambda: hipq.enqueue_many(batch, on_conflict="return"),
        lambda: hipq.enqueue_many(reversed(batch), on_conflict="return"),
    )

    assert errors_of(results) == []
    assert Job.objects.count() == 1 + len(batch)


def test_of_many_that_enqueue_the_first_job_of_a_type_all_succeed() -> None:
    """T7: the type and the queue are registered once."""
    results = run_together(*[lambda: hipq.enqueue("never_seen", queue="never_seen")] * THREADS)

    assert errors_of(results) == []
    assert len({job.job_type_id for job in Job.objects.all()}) == 1


def test_of_many_that_requeue_a_job_with_a_key_one_wins() -> None:
    """T6."""
    job = hipq.cancel(enqueue())

    results = run_together(*[lambda: hipq.requeue(Job.objects.get(pk=job.pk))] * THREADS)

    errors = errors_of(results)
    assert len(errors) == THREADS - 1
    assert all(isinstance(error, hipq.DuplicateJobKeyError) for error in errors), errors
    assert Job.objects.live().get().origin == job


# The other one ends while it is looked for


MANY = [NEW, OTHER]


@pytest.mark.postgres
@pytest.mark.parametrize(
    "step",
    [
        enqueue,
        lambda: enqueue("return"),
        lambda: hipq.enqueue_many(MANY)[0],
        lambda: hipq.enqueue_many(MANY, on_conflict="return")[0],
    ],
    ids=["enqueue", "return", "enqueue_many", "enqueue_many-return"],
)
def test_a_key_whose_job_has_ended_whenever_it_is_looked_for_is_taken_at_last(
    session: Session, step: Callable[[], Job]
) -> None:
    """T6: no error of the database reaches the caller, however often it happens."""
    others, live = [enqueue()], True

    def interfere(run: Any, sql: str, *arguments: Any) -> Any:
        nonlocal live
        if live and 'FROM "hipq_job"' in sql:
            session(lambda: hipq.cancel(Job.objects.get(pk=others[-1].pk)))
            live = False
        elif not live and sql.startswith(("CALL", "INSERT INTO hipq_job")) and len(others) < 8:
            others.append(session(enqueue))
            live = True
        return run(sql, *arguments)

    with connection.execute_wrapper(interfere):
        job = step()

    assert len(others) == 8
    assert Job.objects.live().get(job_key="k") == job


# One waits for the other


@pytest.mark.postgres
@pytest.mark.parametrize("commits", [True, False])
def test_the_second_waits_until_it_is_known_whether_the_first_commits(
    session: Session, commits: bool
) -> None:
    """T1, T6."""
    hipq.enqueue("ask")
    session.begin()
    first = session(enqueue)
    with closing(Session()) as other:
        second = other.start(lambda: enqueue("return"))
        wait_until_blocked()

        session.commit() if commits else session.roll_back()

        assert second.result(30) == Job.objects.get(job_key="k")
        assert second.result(30).conflict is commits
        assert (second.result(30) == first) is commits


@pytest.mark.postgres
def test_a_job_that_is_being_replaced_is_not_claimed(session: Session) -> None:
    old = enqueue()
    session.begin()
    new = session(lambda: enqueue("replace"))
    worker = HandWorker()

    during = worker.run_pass()
    session.commit()
    after = worker.run_pass()

    old.refresh_from_db()
    assert (during, after, old.outcome) == ([], [new], "cancelled")


@pytest.mark.postgres
def test_a_replace_that_meets_a_claim_is_refused(session: Session) -> None:
    """It waits until it is known whether the job runs."""
    enqueue()
    with transaction.atomic():
        HandWorker().run_pass()
        replacing = session.start(lambda: enqueue("replace"))
        wait_until_blocked()

    assert isinstance(replacing.exception(30), hipq.DuplicateJobKeyError)
    assert Job.objects.get().state == "running"
