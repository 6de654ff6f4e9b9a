"""An operator matches an answer that no job has to the job it belongs to."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

import hipq_django as hipq
from hipq_django.answers import api
from hipq_django.answers.classification import refusal
from hipq_django.exceptions import InvalidAnswerError
from hipq_django.models import Answer, Job
from tests.admin_pages import history, html, log_in, messages_of, page_url
from tests.declaring import Declare
from tests.factories import AnswerFactory, JobFactory, JobTypeFactory
from tests.running import run_due_jobs

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]


def unmatched(**values: Any) -> Answer:
    answer: Answer = AnswerFactory.create(**{"status": "unmatched", "job_key": "lost", **values})
    return answer


def asked(name: str = "ask") -> Job:
    """Return a job that waits for its answer."""
    job = hipq.enqueue(name, {"order": 42}, job_key="order-42")
    run_due_jobs()
    return row(job)


def row(job: Job) -> Job:
    return Job.objects.get(pk=job.pk)


@pytest.mark.parametrize("status", ["unmatched", "early"])
def test_the_job_takes_the_answer_as_if_it_came_now(status: str) -> None:
    job, answer = asked(), unmatched(status=status, payload="paid")

    matched = api.assign(answer, job.pk)

    assert (matched.status, matched.job, matched.attempt) == ("accepted", job, 1)
    assert matched.job_key == "lost"  # as it was received
    assert (row(job).outcome, row(job).result) == ("succeeded", "paid")


def test_an_error_that_is_matched_fails_the_attempt() -> None:
    job, answer = asked(), unmatched(kind="error", payload="declined")

    api.assign(answer, job.pk)

    assert (row(job).state, row(job).error) == ("error", "declined")


def test_a_response_that_is_matched_goes_to_the_response_handler(declare: Declare) -> None:
    declared = declare("charge")(lambda job: hipq.WAIT)
    declared.on_response(lambda job, response: [job.job_key, response])
    job = asked("charge")

    api.assign(unmatched(job_type="charge", payload="paid"), job.pk)
    run_due_jobs()

    assert row(job).result == ["order-42", "paid"]


def test_a_job_that_has_not_run_yet_is_settled_without_a_request(declare: Declare) -> None:
    requests: list[Job] = []
    declared = declare("charge")(requests.append)
    job = declared.enqueue(job_key="order-42")

    matched = api.assign(unmatched(job_type="charge", payload="paid"), job.pk)
    run_due_jobs()

    assert (matched.status, matched.job) == ("early", job)
    assert (row(job).result, requests) == ("paid", [])
    assert Answer.objects.get().status == "accepted"


def test_a_job_that_waits_for_its_retry_is_settled() -> None:
    job = JobFactory.create(state="retry", job_type=JobTypeFactory.create(name="ask"))

    api.assign(unmatched(payload="paid"), job.pk)

    assert (row(job).outcome, row(job).result) == ("succeeded", "paid")


# What is refused, with nothing changed


def refused(answer: Answer, job_id: int) -> str:
    before = list(Job.objects.values()), list(Answer.objects.values())
    with pytest.raises(InvalidAnswerError) as caught:
        api.assign(answer, job_id)
    assert (list(Job.objects.values()), list(Answer.objects.values())) == before
    return str(caught.value)


def test_a_job_that_is_not_there_is_refused() -> None:
    assert "there is no job 4711" in refused(unmatched(), 4711)


def test_an_answer_that_was_pruned_is_refused() -> None:
    answer = unmatched()
    Answer.objects.all().delete()

    assert "does not exist any more" in refused(answer, asked().pk)


def test_a_final_job_is_refused() -> None:
    job = asked()
    hipq.cancel(job)

    assert "is final (cancelled) and never changes" in refused(unmatched(), job.pk)


def test_a_job_of_another_type_is_refused() -> None:
    job = hipq.enqueue("echo")

    text = refused(unmatched(), job.pk)

    assert (
        "the answer is for job type 'ask' of instance 'default', the job is of type 'echo'" in text
    )


def test_a_job_of_another_name_of_its_type_is_taken(declare: Declare) -> None:
    declare("bill")(lambda job: hipq.WAIT)
    job = asked("bill")
    declare.forget_all()
    declare("invoice", aliases=["bill"])(lambda job: hipq.WAIT)

    api.assign(unmatched(job_type="invoice", payload="paid"), job.pk)

    assert row(job).result == "paid"


def test_a_job_that_was_answered_is_refused(declare: Declare) -> None:
    declared = declare("ask_twice")(lambda job: hipq.WAIT)
    declared.on_response(lambda job, response: response)
    job = asked("ask_twice")
    hipq.complete("ask_twice", "order-42", "paid")

    text = refused(unmatched(job_type="ask_twice", payload="paid again"), job.pk)

    assert f"to job {job.pk} (order-42): attempt 1 of the job was answered already" in text


def test_a_message_that_is_no_answer_is_refused() -> None:
    message = Answer(kind="malformed", status="unmatched")

    reason = refusal(message, asked())

    assert not message.is_free
    assert (
        "the answer is unmatched, its kind is malformed; only early and unmatched answers" in reason
    )


@pytest.mark.parametrize("status", ["accepted", "late", "duplicate"])
def test_an_answer_that_has_a_job_is_refused(status: str) -> None:
    answer = unmatched(status=status, job=JobFactory.create(state="final"))

    assert f"the answer is {status}, its kind is response; only early and" in refused(
        answer, asked().pk
    )


# The page


def look(client: Client, answer: Answer, job: Any) -> str:
    response = client.post(page_url(answer, "match"), {"job": job})
    assert response.status_code == 200
    page: str = response.content.decode()
    return page


def press(client: Client, answer: Answer, job_id: Any) -> Any:
    sent = {"job": job_id, "confirmed": "1"}
    return client.post(page_url(answer, "match"), sent, follow=True)


def test_the_page_of_an_answer_leads_to_the_one_for_matching(admin_client: Client) -> None:
    free, taken = unmatched(), unmatched(status="late", job=JobFactory.create(state="final"))

    assert page_url(free, "match") in html(admin_client, page_url(free))
    assert page_url(taken, "match") not in html(admin_client, page_url(taken))
    assert "Jobs that wait for their answer" in html(admin_client, page_url(free, "match"))


def test_it_shows_both_then_matches_and_writes_both_histories(client: Client) -> None:
    log_in(client, "view_answer", "view_job", "match_answer")
    hostile = "<script>alert(1)</script>"
    job, answer = asked(), unmatched(payload=hostile)

    page = look(client, answer, job.pk)
    assert "&lt;script&gt;" in page
    assert hostile not in page
    assert page_url(job) in page
    assert row(job).state == "running"
    response = press(client, answer, job.pk)

    said = f"Matched to job {job.pk} (order-42), and accepted: answer {answer.pk}"
    assert messages_of(response)[0].startswith(said)
    assert response.redirect_chain == [(page_url(answer), 302)]
    assert history(answer) == [f"Matched to job {job.pk}."]
    assert history(job) == [f"Answer {answer.pk} matched to it."]
    assert row(job).result == hostile


def test_what_is_refused_is_said_and_not_in_the_history(admin_client: Client) -> None:
    job, answer, other = asked(), unmatched(), hipq.enqueue("echo")

    assert "They cannot be matched: the answer is for job type" in look(
        admin_client, answer, other.pk
    )
    hipq.complete("ask", "order-42", "paid meanwhile")

    response = press(admin_client, answer, job.pk)

    assert "was not matched to job" in response.content.decode()
    assert history(answer) == history(job) == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("4711", "There is no job 4711."),
        ("x", "Enter a whole number."),
        ("", "This field is required."),
        ("0", "greater than or equal to 1"),
        ("9" * 30, "less than or equal to"),
    ],
)
def test_what_is_no_job_is_said(admin_client: Client, given: str, said: str) -> None:
    answer = unmatched()

    assert said in look(admin_client, answer, given)
    assert said in press(admin_client, answer, given).content.decode()


def test_an_answer_that_is_not_there_leads_to_the_list(admin_client: Client) -> None:
    answer = unmatched()
    url = page_url(answer, "match")
    answer.delete()

    response = admin_client.get(url, follow=True)

    assert "There is no answer" in messages_of(response)[0]
