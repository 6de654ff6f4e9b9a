"""Answers that find no running job: early, late, unknown."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.conf.instances import get_instance
from hipq_django.database import clock
from hipq_django.job_types.job_type import JobTypeSpec
from hipq_django.maintenance import early_answers, recovery
from hipq_django.models import Job
from tests.declaring import Declare, noting
from tests.factories import AnswerFactory
from tests.integration.conftest import ConfigureQueue
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db

requests: list[str] = []


@pytest.fixture
def charge(declare: Declare) -> JobTypeSpec:
    """A type that writes its requests down and waits."""
    requests.clear()
    return declare("charge")(noting(requests, "job_key", hipq.WAIT))


def run(name: str = "charge", **options: Any) -> Job:
    job = hipq.enqueue(name, job_key="k", **options)
    run_due_jobs()
    job.refresh_from_db()
    return job


# Before the job is there


def test_an_answer_without_a_job_is_kept() -> None:
    answer = hipq.complete("charge", "k", response="paid")

    assert (answer.status, answer.job, answer.payload) == ("early", None, "paid")


def test_an_answer_that_came_before_the_job_settles_it(charge: JobTypeSpec) -> None:
    """T16: no request is sent."""
    answer = hipq.complete("charge", "k", response="paid")

    job = run()

    answer.refresh_from_db()
    assert (job.outcome, job.result, requests) == ("succeeded", "paid", [])
    assert (answer.status, answer.job) == ("accepted", job)


def test_an_error_that_came_before_the_job_fails_its_first_attempt(charge: JobTypeSpec) -> None:
    """T16."""
    hipq.fail("charge", "k", error="no such order")

    job = run()

    assert (job.outcome, job.error, requests) == ("failed", "no such order", [])
    assert job.attempts.count() == 1


def test_an_early_error_is_used_up_by_one_attempt(declare: Declare, frozen_time: Any) -> None:
    """T16: the next attempt sends its request."""
    attempts: list[int] = []
    declare("charge", retry=hipq.Fixed(seconds=60))(noting(attempts, "attempt", hipq.WAIT))
    hipq.fail("charge", "k", error="busy")
    job = run()

    frozen_time.shift(60)
    run_due_jobs()

    job.refresh_from_db()
    assert (job.state, job.attempt, attempts) == ("running", 2, [2])


def test_an_early_answer_goes_to_the_response_handler(charge: JobTypeSpec) -> None:
    """T16."""
    charge.on_response(lambda job, response: [job.job_key, response])
    hipq.complete("charge", "k", response="paid")

    job = run()

    assert (job.outcome, job.result, requests) == ("succeeded", ["k", "paid"], [])


def test_an_early_answer_is_for_its_type_and_key_only(charge: JobTypeSpec) -> None:
    hipq.complete("charge", "other", response="paid")
    hipq.complete("ask", "k", response="paid")

    assert run().state == "running"


def test_of_two_early_answers_the_first_one_wins(charge: JobTypeSpec) -> None:
    """T17."""
    first = hipq.complete("charge", "k", response="first")
    second = hipq.complete("charge", "k", response="second")

    job = run()

    first.refresh_from_db()
    second.refresh_from_db()
    assert job.result == "first"
    assert (first.status, second.status) == ("accepted", "duplicate")


def test_the_first_answer_wins_also_if_the_job_came_between_the_two(charge: JobTypeSpec) -> None:
    """T17."""
    hipq.complete("charge", "k", response="first")
    job = charge.enqueue(job_key="k")
    hipq.complete("charge", "k", response="second")

    run_due_jobs()

    job.refresh_from_db()
    assert job.result == "first"


def test_an_early_answer_is_given_up_after_its_time_to_live(
    charge: JobTypeSpec, frozen_time: Any, settings: Settings
) -> None:
    settings.HIPQ = {"default": {"ANSWER_TTL_SECONDS": 60}}
    answer = hipq.complete("charge", "k", response="paid")

    frozen_time.shift(61)
    expired = early_answers.expire_early(get_instance())
    job = run()

    answer.refresh_from_db()
    assert (expired, answer.status, answer.job) == (1, "unmatched", None)
    assert (job.state, requests) == ("running", ["k"])


def test_an_early_answer_past_its_time_to_live_does_not_count_even_before_it_is_marked(
    charge: JobTypeSpec, frozen_time: Any, settings: Settings
) -> None:
    settings.HIPQ = {"default": {"ANSWER_TTL_SECONDS": 60}}
    hipq.complete("charge", "k", response="paid")

    frozen_time.shift(61)

    assert run().state == "running"


def test_an_early_answer_is_not_given_up_before_its_time(frozen_time: Any) -> None:
    hipq.complete("charge", "k", response="paid")

    frozen_time.shift(86_399)

    assert early_answers.expire_early(get_instance()) == 0


def test_an_answer_that_the_claim_could_not_see_is_found_afterwards(charge: JobTypeSpec) -> None:
    """T16: both were committed at the same moment, and neither saw the other."""
    job = run()
    AnswerFactory.create(job_type="charge", job_key="k", payload="paid")

    assert early_answers.match_early(get_instance()) == 1

    job.refresh_from_db()
    assert (job.outcome, job.result) == ("succeeded", "paid")


# While the job is initial


def test_an_answer_to_a_waiting_job_settles_it_without_a_request(charge: JobTypeSpec) -> None:
    """T16."""
    job = charge.enqueue(job_key="k")

    answer = hipq.complete("charge", "k", response="paid")
    run_due_jobs()

    job.refresh_from_db()
    answer.refresh_from_db()
    assert (job.outcome, job.result, requests) == ("succeeded", "paid", [])
    assert (answer.status, answer.job) == ("accepted", job)


def test_an_answer_to_a_job_of_the_future_settles_it_now(charge: JobTypeSpec) -> None:
    """T16."""
    later = clock.now("default") + timedelta(days=1)
    job = charge.enqueue(job_key="k", scheduled_run_time=later)

    hipq.complete("charge", "k", response="paid")
    run_due_jobs()

    job.refresh_from_db()
    assert (job.outcome, requests) == ("succeeded", [])


def test_an_answered_job_does_not_wait_for_its_windows(
    charge: JobTypeSpec, frozen_time: Any
) -> None:
    """T29: windows guard the request."""
    job = charge.enqueue(job_key="k", time_windows=["05:00-07:00"])

    hipq.complete("charge", "k", response="paid")
    run_due_jobs()

    job.refresh_from_db()
    assert (job.outcome, requests) == ("succeeded", [])


def test_a_second_answer_to_a_waiting_job_is_a_duplicate_or_late(charge: JobTypeSpec) -> None:
    """T17."""
    job = charge.enqueue(job_key="k")
    hipq.complete("charge", "k", response="first")

    same = hipq.complete("charge", "k", response="first")
    other = hipq.complete("charge", "k", response="second")
    run_due_jobs()

    job.refresh_from_db()
    assert (same.status, other.status, job.result) == ("duplicate", "late", "first")


def test_a_response_after_an_error_that_came_while_the_job_waited_settles_it(
    declare: Declare,
) -> None:
    """T16: the early error is used up by its attempt, the job is open for an answer again."""
    patient = declare("patient", retry=hipq.Fixed(seconds=60))(noting([], "pk", hipq.WAIT))
    job = patient.enqueue(job_key="k")
    hipq.fail("patient", "k", error="busy")
    run_due_jobs()

    answer = hipq.complete("patient", "k", response="paid")

    job.refresh_from_db()
    assert (answer.status, job.outcome, job.result) == ("accepted", "succeeded", "paid")


def test_a_retry_after_an_early_error_obeys_its_throttlers_again(
    declare: Declare, configure_queue: ConfigureQueue, frozen_time: Any
) -> None:
    """T16: only a job whose answer is there needs none."""
    configure_queue(lambda queue, now, running, asked: [hipq.Hold("closed") for _ in asked])
    patient = declare("patient", retry=hipq.Fixed(seconds=60))(noting([], "pk", hipq.WAIT))
    job = patient.enqueue(job_key="k")
    hipq.fail("patient", "k", error="busy")
    run_due_jobs()

    frozen_time.shift(60)
    run_due_jobs()

    job.refresh_from_db()
    assert (job.state, job.attempt) == ("retry", 1)


@pytest.mark.parametrize("place", ["before", "among", "behind"])
def test_an_answer_is_matched_wherever_it_stands_among_unknown_ones(
    monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setattr(early_answers, "EARLY_PAGE", 2)
    monkeypatch.setattr(early_answers, "EARLY_NEW", 0)
    for key in ("b", "b-1", "Ä", "zz", "zz"):
        AnswerFactory.create(job_type="ask", job_key=key)
    key = {"before": "a", "among": "c", "behind": "zzz"}[place]
    job = hipq.enqueue("ask", job_key=key)
    run_due_jobs()
    AnswerFactory.create(job_type="ask", job_key=key, payload="paid")

    assert early_answers.match_early(get_instance()) == 1

    job.refresh_from_db()
    assert job.result == "paid"


def test_more_answers_than_one_batch_are_all_matched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "BATCH", 2)
    jobs = [hipq.enqueue("ask", job_key=key) for key in "abcde"]
    run_due_jobs()
    for key in "abcde":
        AnswerFactory.create(job_type="ask", job_key=key, payload=key)

    assert early_answers.match_early(get_instance()) == 5
    assert [Job.objects.get(pk=job.pk).result for job in jobs] == list("abcde")


def test_a_new_answer_is_matched_by_the_next_look_however_many_are_older(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(early_answers, "EARLY_PAGE", 2)
    AnswerFactory.create_batch(9, job_type="ask")
    looks = early_answers.EarlyAnswers(get_instance())
    looks.match()
    job = hipq.enqueue("ask", job_key="z")
    run_due_jobs()
    AnswerFactory.create(job_type="ask", job_key="z", payload="paid")

    assert looks.match() == 1

    job.refresh_from_db()
    assert job.result == "paid"
