"""Answers that come after their job has ended: kept, and never given to another job."""

from __future__ import annotations

import pytest

import hipq_django as hipq
from hipq_django.conf.instances import get_instance
from hipq_django.job_types.job_type import JobTypeSpec
from hipq_django.maintenance import early_answers
from hipq_django.models import Answer, Job
from tests.declaring import Declare
from tests.factories import AnswerFactory, JobFactory
from tests.running import run_due_jobs

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]


@pytest.fixture
def charge(declare: Declare) -> JobTypeSpec:
    """A type whose jobs wait for their answer."""
    return declare("charge")(lambda job: hipq.WAIT)


def run() -> Job:
    job = hipq.enqueue("charge", job_key="k")
    run_due_jobs()
    job.refresh_from_db()
    return job


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


def test_an_early_answer_that_the_claim_did_not_see_is_late_for_a_job_of_the_same_key(
    charge: JobTypeSpec,
) -> None:
    job = run()
    answer = AnswerFactory.create(job_type="charge", job_key="k", payload="yesterday")
    JobFactory.create(job_type=job.job_type, job_key="k", state="final")

    early_answers.match_early(get_instance())

    answer.refresh_from_db()
    job.refresh_from_db()
    assert (job.state, answer.status) == ("running", "late")


def test_the_job_types_of_answers_need_not_be_known() -> None:
    answer = hipq.complete("never heard of", "k", response="paid")

    assert (answer.status, Answer.objects.get()) == ("early", answer)
