"""Answers that find no running job: early, late, unknown."""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.conf.instances import get_instance
from hipq_django.job_types.job_type import JobTypeSpec
from hipq_django.maintenance import early_answers
from hipq_django.models import Answer, Job
from tests.declaring import Declare, noting
from tests.factories import AnswerFactory, JobFactory
from tests.hand_worker import HandWorker
from tests.integration.conftest import ConfigureQueue
from tests.running import run_due_jobs
from tests.settings import ENGINE

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]

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


def test_an_early_answer_is_given_up_after_its_time_to_live(
    charge: JobTypeSpec, frozen_time: Any, settings: Settings
) -> None:
    settings.HIPQ = {"default": {"ENGINE": ENGINE, "ANSWER_TTL_SECONDS": 60}}
    answer = hipq.complete("charge", "k", response="paid")

    frozen_time.shift(59)
    assert early_answers.expire_early(get_instance()) == 0
    frozen_time.shift(2)
    expired = early_answers.expire_early(get_instance())
    job = run()

    answer.refresh_from_db()
    assert (expired, answer.status, answer.job) == (1, "unmatched", None)
    assert (job.state, requests) == ("running", ["k"])


# While the job is initial


def test_no_throttler_holds_a_job_whose_answer_came_before_it(
    charge: JobTypeSpec, configure_queue: ConfigureQueue
) -> None:
    configure_queue(
        lambda queue, now, running, candidates: [hipq.Hold("never") for _ in candidates]
    )
    hipq.complete("charge", "k", response="paid")

    job = charge.enqueue(job_key="k")
    run_due_jobs()

    job.refresh_from_db()
    assert (job.outcome, requests) == ("succeeded", [])


@pytest.mark.parametrize("kinds", ["rr", "re", "er", "ee"])
def test_which_of_two_early_answers_a_job_takes_does_not_depend_on_when_they_are_found(
    declare: Declare, kinds: str
) -> None:
    """By the workers before the claim, or by the claim."""
    ends = []
    for name in ("found", "claimed"):
        requests.clear()
        declare(name)(noting(requests, "job_key", hipq.WAIT))
        send: dict[str, Any] = {"r": hipq.complete, "e": hipq.fail}
        answers = [send[kind](name, "k", f"{n}") for n, kind in enumerate(kinds)]
        job = hipq.enqueue(name, job_key="k")
        if name == "found":
            assert early_answers.match_early(get_instance()) == 2
        HandWorker().run_pass()
        job.refresh_from_db()
        for answer in answers:
            answer.refresh_from_db()
        ends.append([job.state, job.result, job.error, *(answer.status for answer in answers)])

    assert ends[0] == ends[1]
    assert sorted(ends[0][3:]) == ["accepted", "duplicate"]


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


@pytest.mark.parametrize(("said", "made"), [("bill", "invoice"), ("invoice", "bill")])
def test_an_answer_under_another_name_of_its_type_is_found_once_the_job_has_begun(
    declare: Declare, said: str, made: str
) -> None:
    declare("invoice", aliases=["bill"])(lambda job: hipq.WAIT)
    answer = hipq.complete(said, "k", "paid")

    job = run(made)

    answer.refresh_from_db()
    assert (answer.status, answer.job_id) == ("accepted", job.pk)
    assert (job.outcome, job.result) == ("succeeded", "paid")


def test_an_answer_under_another_name_is_late_for_the_job_after_its_own(declare: Declare) -> None:
    declare("invoice", aliases=["bill"])(lambda job: hipq.WAIT)
    answer = hipq.complete("bill", "k", "paid")
    hipq.cancel(hipq.enqueue("invoice", job_key="k"))

    job = run("invoice")

    answer.refresh_from_db()
    assert (answer.status, job.state) == ("late", "running")


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


# Delivered again, after it was early


@pytest.mark.parametrize("name", ["invoice", "bill"])
def test_a_message_that_was_early_settles_no_later_job(declare: Declare, name: str) -> None:
    """Under a former name, too."""
    declare("invoice", aliases=["bill"])(lambda job: hipq.WAIT)
    first = hipq.complete(name, "k", "paid", message_id="m1")
    assert run("invoice").outcome == "succeeded"
    job = run("invoice")

    again = hipq.complete(name, "k", "paid", message_id="m1")

    job.refresh_from_db()
    assert (again.pk, job.state, Answer.objects.count()) == (first.pk, "running", 1)


# Too late


def test_a_late_answer_names_the_newest_job_of_its_key(charge: JobTypeSpec) -> None:
    for _ in range(3):
        job = run()
        hipq.cancel(job)

    assert hipq.complete("charge", "k", response="paid").job == job


def test_an_early_answer_is_late_if_a_job_with_its_key_has_ended_meanwhile(
    charge: JobTypeSpec,
) -> None:
    answer = hipq.complete("charge", "k", response="yesterday")
    JobFactory.create(job_type=charge.enqueue().job_type, job_key="k", state="final")

    job = run()

    answer.refresh_from_db()
    assert (job.state, answer.status) == ("running", "late")
