"""An operator matches an answer that no job has to the job it belongs to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

import hipq_django as hipq
from hipq_django.answers import api
from hipq_django.exceptions import InvalidAnswerError
from hipq_django.models import Answer, Job, JobType
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


@pytest.mark.parametrize(
    ("values", "end"),
    [
        ({"status": "unmatched", "payload": "paid"}, ("final", "paid", "NONE")),
        ({"status": "early", "payload": "paid"}, ("final", "paid", "NONE")),
        ({"kind": "error", "payload": "declined"}, ("error", None, "declined")),
    ],
)
@pytest.mark.parametrize("state", ["running", "retry"])
def test_the_job_takes_the_answer_as_if_it_came_now(
    state: str, values: dict[str, Any], end: tuple[Any, ...]
) -> None:
    job_type = JobTypeFactory.create(name="ask")
    job = JobFactory.create(state=state, job_type=job_type, attempt=1)

    matched = api.assign(unmatched(**values), job.pk)

    assert (matched.status, matched.job, matched.attempt) == ("accepted", job, 1)
    assert matched.job_key == "lost"  # as it was received
    assert (row(job).state, row(job).result, row(job).error) == end


def test_a_job_that_has_not_run_yet_is_settled_without_a_request(declare: Declare) -> None:
    requests: list[Job] = []
    declared = declare("charge")(requests.append)
    job = declared.enqueue(job_key="order-42")

    matched = api.assign(unmatched(job_type="charge", payload="paid"), job.pk)
    run_due_jobs()

    assert (matched.status, matched.job) == ("early", job)
    assert (row(job).result, requests) == ("paid", [])
    assert Answer.objects.get().status == "accepted"


# What is refused, with nothing changed


def refused(answer: Answer, job_id: int) -> str:
    before = list(Job.objects.values()), list(Answer.objects.values())
    with pytest.raises(InvalidAnswerError) as caught:
        api.assign(answer, job_id)
    assert (list(Job.objects.values()), list(Answer.objects.values())) == before
    return str(caught.value)


def of_a_type_that_was_answered(job: Job) -> tuple[Answer, int]:
    hipq.complete("ask", "order-42", "paid")
    fresh = hipq.enqueue("ask", job_key="order-42")
    run_due_jobs()
    JobType.objects.filter(name="ask").update(has_response_handler=True)
    hipq.complete("ask", "order-42", "paid")
    return unmatched(payload="paid again"), fresh.pk


def pruned(job: Job) -> tuple[Answer, int]:
    answer = unmatched()
    Answer.objects.all().delete()
    return answer, job.pk


def with_a_job(status: str) -> Callable[[Job], tuple[Answer, int]]:
    return lambda job: (unmatched(status=status, job=JobFactory.create(state="final")), job.pk)


REFUSED: dict[str, Callable[[Job], tuple[Answer, int]]] = {
    "there is no job 4711": lambda job: (unmatched(), 4711),
    "does not exist any more": pruned,
    "is final (cancelled) and never changes": lambda job: (unmatched(), hipq.cancel(job).pk),
    "the answer is for job type 'ask' of instance 'default', the job is of type 'echo'": (
        lambda job: (unmatched(), hipq.enqueue("echo").pk)
    ),
    "attempt 1 of the job was answered already": of_a_type_that_was_answered,
    "the answer is accepted, its kind is response; only early and": with_a_job("accepted"),
    "the answer is unmatched, its kind is malformed; only early and unmatched answers": (
        lambda job: (unmatched(kind="malformed", problem="odd"), job.pk)
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_cannot_be_matched_is_refused(why: str) -> None:
    answer, job_id = REFUSED[why](asked())

    assert why in refused(answer, job_id)


def test_a_job_of_another_name_of_its_type_is_taken(declare: Declare) -> None:
    declare("bill")(lambda job: hipq.WAIT)
    job = asked("bill")
    declare.forget_all()
    declare("invoice", aliases=["bill"])(lambda job: hipq.WAIT)

    api.assign(unmatched(job_type="invoice", payload="paid"), job.pk)

    assert row(job).result == "paid"


# The page


def look(client: Client, answer: Answer, job: Any) -> str:
    response = client.post(page_url(answer, "match"), {"job": job, "confirmed": "1"})
    assert response.status_code == 200
    page: str = response.content.decode()
    return page


def press(client: Client, answer: Answer, job_id: Any) -> Any:
    sent = {"job": job_id, "seen": job_id, "confirmed": "1"}
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
    assert f'name="seen" value="{job.pk}"' in page
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
    ],
)
def test_what_is_no_job_is_said(admin_client: Client, given: str, said: str) -> None:
    answer = unmatched()

    assert said in look(admin_client, answer, given)
    assert said in press(admin_client, answer, given).content.decode()
