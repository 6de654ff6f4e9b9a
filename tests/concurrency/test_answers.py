"""Answers that come at the same moment as something else."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.db import transaction

import hipq_django as hipq
from hipq_django.answers.api import answer_callback
from hipq_django.answers.callback_urls import Token
from hipq_django.conf.instances import get_instance
from hipq_django.maintenance import early_answers, recovery
from hipq_django.models import Answer, Job
from tests.concurrency.sessions import Session, errors_of, run_together, wait_until_blocked
from tests.factories import AnswerFactory
from tests.hand_worker import HandWorker
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db(transaction=True)

THREADS = 4


def asked(key: str = "k") -> Job:
    job = hipq.enqueue("ask", job_key=key)
    HandWorker().work()
    return job


def cancel() -> Job:
    return hipq.cancel(Job.objects.filter(job_key="k").latest("pk"))


def complete(response: Any, **options: Any) -> Callable[[], Answer]:
    return lambda: hipq.complete("ask", "k", response=response, **options)


def statuses(results: list[Any]) -> list[str]:
    assert errors_of(results) == []
    return sorted(str(answer.status) for answer in results)


@pytest.mark.parametrize("said", ["different", "the same", "by callback"])
def test_of_answers_at_one_moment_the_first_wins(said: str) -> None:
    """T17."""
    job = asked()
    token = Token("default", job.pk, 1)
    numbers = [complete(number) for number in range(THREADS)]
    ways: dict[str, list[Callable[[], Answer]]] = {
        "different": numbers,
        "the same": numbers[:1] * THREADS,
        "by callback": [lambda: answer_callback(token, "response", "paid")] * THREADS,
    }

    results = run_together(*ways[said])

    job.refresh_from_db()
    others = "late" if said == "different" else "duplicate"
    assert statuses(results) == ["accepted"] + [others] * (THREADS - 1)
    assert job.result == Answer.objects.get(status="accepted").payload


@pytest.mark.parametrize("beside", ["an error", "a timeout", "the end of its request", "its claim"])
def test_a_response_at_one_moment_with_something_else_settles_the_job(
    beside: str, rounds: int
) -> None:
    """T15, T16, T17: it settles the job also after the error."""
    for _ in range(rounds):
        job, worker = hipq.enqueue("ask", job_key="k"), HandWorker()
        if beside != "its claim":
            worker.run_pass()
            worker.execute()
        if beside in ("an error", "a timeout"):
            worker.save()
        if beside == "a timeout":
            Job.objects.live().update(deadline="2001-01-01T00:00:00Z")
        others: dict[str, Callable[[], Any]] = {
            "an error": lambda: hipq.fail("ask", "k", error="declined"),
            "a timeout": lambda: recovery.time_out_overdue(get_instance()),
            "the end of its request": worker.save,
            "its claim": worker.run_pass,
        }

        results = run_together(complete("paid"), others[beside])
        worker.execute()
        worker.save()
        run_due_jobs()

        job.refresh_from_db()
        assert errors_of(results) == []
        assert (job.outcome, job.result) == ("succeeded", "paid")


@pytest.mark.parametrize("job_is_there", [True, False])
def test_a_message_that_is_delivered_twice_at_one_moment_is_stored_once(
    job_is_there: bool,
) -> None:
    """T17."""
    if job_is_there:
        asked()

    results = run_together(*[complete("paid", message_id="m-1")] * THREADS)

    assert errors_of(results) == []
    assert set(results) == {Answer.objects.get()}


def test_batches_with_the_same_jobs_in_any_order_wait_for_each_other() -> None:
    """Responses are settled first, then errors; what locks them all goes by the jobs' ids."""
    keys = [f"k-{number}" for number in range(20)]
    hipq.enqueue_many(hipq.NewJob("ask", job_key=key) for key in keys)
    HandWorker().work()
    responses = [hipq.NewAnswer("ask", key, response=key) for key in keys]
    errors = [hipq.NewAnswer("ask", key, error="no") for key in keys]
    mixed = [pair[n % 2] for n, pair in enumerate(zip(responses, errors, strict=True))]
    crossed = [pair[1 - n % 2] for n, pair in enumerate(zip(responses, errors, strict=True))]

    results = run_together(
        *[partial(hipq.receive_many, batch) for batch in (mixed, mixed[::-1], crossed, responses)]
    )

    assert errors_of(results) == []
    assert set(Job.objects.values_list("state", flat=True)) <= {"final", "error", "running"}
    assert Answer.objects.filter(status="accepted").count() >= len(keys)


def test_an_answer_and_a_cancel_at_one_moment_end_in_one_of_both(rounds: int) -> None:
    for _ in range(rounds):
        job = asked()

        answer, cancelled = run_together(complete("paid"), cancel)

        job.refresh_from_db()
        assert isinstance(answer, Answer)
        if job.outcome == "cancelled":
            assert (answer.status, job.result) == ("late", None)
        else:
            assert (answer.status, job.result) == ("accepted", "paid")
            assert isinstance(cancelled, hipq.InvalidJobError)


# One does not see the other yet


@pytest.mark.postgres
def test_an_answer_to_a_job_whose_enqueue_is_not_committed_is_early(session: Session) -> None:
    """T16: it settles the job afterwards."""
    session.begin()
    session(lambda: hipq.enqueue("ask", job_key="k"))

    answer = hipq.complete("ask", "k", response="paid")
    session.commit()
    run_due_jobs()

    assert answer.status == "early"
    job = Job.objects.get()
    assert (job.outcome, job.result) == ("succeeded", "paid")


@pytest.mark.postgres
def test_an_answer_that_the_claim_does_not_see_yet_is_matched_afterwards(
    session: Session,
) -> None:
    """T16."""
    session.begin()
    session(complete("paid"))
    job = asked()
    session.commit()

    assert early_answers.match_early(get_instance()) == 1

    job.refresh_from_db()
    assert (job.outcome, job.result) == ("succeeded", "paid")


@pytest.mark.postgres
@pytest.mark.parametrize("what", ["job", "answer"])
def test_what_somebody_has_locked_is_matched_later(session: Session, what: str) -> None:
    """The worker that looks for such answers does not wait."""
    job = asked()
    answer = AnswerFactory.create(job_type="ask", job_key="k", payload="paid")
    row = {"job": job, "answer": answer}[what]
    session.begin()
    session(lambda: list(type(row)._default_manager.select_for_update().filter(pk=row.pk)))

    while_locked = early_answers.match_early(get_instance())
    session.commit()

    assert while_locked == 0
    assert early_answers.match_early(get_instance()) == 1
    job.refresh_from_db()
    assert (job.outcome, job.result) == ("succeeded", "paid")


@pytest.mark.postgres
def test_a_job_that_is_just_being_answered_is_not_asked(session: Session) -> None:
    """T16: no request is sent."""
    job = hipq.enqueue("ask", job_key="k")
    session.begin()
    session(complete("paid"))
    worker = HandWorker()

    during = worker.work()
    session.commit()
    worker.work()

    job.refresh_from_db()
    assert (during, job.outcome, worker.claims) == ([], "succeeded", [])


@pytest.mark.postgres
def test_an_answer_waits_for_a_claim_that_is_not_committed(session: Session) -> None:
    """T16."""
    job = hipq.enqueue("ask", job_key="k")
    with transaction.atomic():
        HandWorker().run_pass()
        answering = session.start(complete("paid"))
        wait_until_blocked()

    assert answering.result(30).status == "accepted"
    job.refresh_from_db()
    assert (job.outcome, job.attempt) == ("succeeded", 1)


@pytest.mark.postgres
def test_a_rolled_back_answer_leaves_the_job_to_the_next_one(session: Session) -> None:
    """T17."""
    job = asked()
    session.begin()
    session(complete("never was"))
    other = Session()
    second = other.start(complete("paid"))
    wait_until_blocked()

    session.roll_back()

    assert second.result(30).status == "accepted"
    job.refresh_from_db()
    assert job.result == "paid"
    other.close()


@pytest.mark.postgres
def test_an_answer_to_a_final_job_waits_for_nobody_who_has_locked_it(session: Session) -> None:
    """Who waits for a live job, and finds a final one, keeps its lock: a deadlock, with batches."""
    job = asked()
    complete("paid")()
    with transaction.atomic():
        Job.objects.select_for_update(no_key=True).get(pk=job.pk)

        answer = session(complete("again", message_id="m-2"))

    assert answer.status == "late"
