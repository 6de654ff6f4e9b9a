"""A handler sets its job's key while the answer for that key arrives."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from typing import Any

import pytest

import hipq_django as hipq
from hipq_django.conf.instances import get_instance
from hipq_django.exceptions import DuplicateJobKeyError
from hipq_django.maintenance import early_answers
from hipq_django.models import Answer, Job
from tests.concurrency.sessions import Session, errors_of, run_together, wait_until_blocked
from tests.hand_worker import HandWorker

pytestmark = pytest.mark.django_db(transaction=True)

THREADS = 4


def executing() -> tuple[HandWorker, Job]:
    """Return a worker and the copy that the handler it executes was given."""
    hipq.enqueue("ask")
    worker = HandWorker()
    return worker, worker.run_pass()[0]


def complete(response: Any = "paid", **options: Any) -> Answer:
    return hipq.complete("ask", "bank-77", response, **options)


def settle(worker: HandWorker) -> None:
    """End the handler, and do what every worker does now and then."""
    worker.execute()
    worker.save()
    early_answers.match_early(get_instance())


def test_several_answers_at_the_same_moment_are_all_accounted_for(rounds: int) -> None:
    for _ in range(rounds):
        Answer.objects.all().delete()
        worker, job = executing()
        answers = [partial(complete, n) for n in range(THREADS)]

        results: list[Any] = run_together(partial(job.set_key, "bank-77"), *answers)
        settle(worker)

        row = Job.objects.get(pk=job.pk)
        statuses = sorted(Answer.objects.values_list("status", flat=True))
        assert errors_of(results) == []
        assert row.outcome == "succeeded"
        assert row.result == Answer.objects.get(status="accepted").payload
        assert (statuses.count("accepted"), len(statuses)) == (1, THREADS)
        assert set(statuses) <= {"accepted", "late", "duplicate"}
        Job.objects.all().delete()


def test_two_jobs_that_want_one_key_at_the_same_moment_end_with_one_of_them_having_it(
    rounds: int,
) -> None:
    for _ in range(rounds):
        hipq.enqueue_many([hipq.NewJob("ask"), hipq.NewJob("ask")])
        first, second = HandWorker().run_pass()

        results = run_together(*[partial(job.set_key, "bank-77") for job in (first, second)])

        assert sorted(str(type(result).__name__) for result in results) == [
            "DuplicateJobKeyError",
            "bool",
        ]
        assert Job.objects.filter(job_key="bank-77").count() == 1
        Job.objects.all().delete()


@pytest.mark.postgres
def test_an_answer_that_the_key_does_not_see_yet_is_matched_afterwards(session: Session) -> None:
    """T16: and that does not see the key either."""
    worker, job = executing()
    session.begin()
    session(complete)
    job.set_key("bank-77")
    session.commit()

    settle(worker)

    job.refresh_from_db()
    assert (job.outcome, job.result) == ("succeeded", "paid")


@pytest.mark.postgres
def test_an_answer_waits_for_a_key_that_is_being_written(session: Session) -> None:
    """The job is locked while its key is replaced, and found by the new key only."""
    hipq.enqueue("ask", job_key="order-42")
    job = HandWorker().run_pass()[0]
    session.begin()
    session(lambda: job.set_key("bank-77"))
    other = Session()
    answering = other.start(lambda: hipq.complete("ask", "order-42", "paid"))
    wait_until_blocked()

    session.commit()

    assert answering.result(30).status == "early"
    assert complete().status == "accepted"
    other.close()


@pytest.mark.postgres
@pytest.mark.parametrize("commits", [True, False])
def test_a_key_that_is_just_being_taken_waits(session: Session, commits: bool) -> None:
    _, job = executing()
    session.begin()
    session(lambda: hipq.enqueue("ask", job_key="bank-77"))
    with closing(Session()) as other:
        setting = other.start(lambda: job.set_key("bank-77"))
        wait_until_blocked()

        session.commit() if commits else session.roll_back()

        error = setting.exception(30)
        assert isinstance(error, DuplicateJobKeyError) if commits else error is None
