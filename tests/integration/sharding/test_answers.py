"""Answers, verbs and look-ups find the shard of their job: by its id, or by a key."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from django.test import Client, RequestFactory

import hipq_django as hipq
from hipq_django.answers.intake import Intake
from hipq_django.conf.instances import get_instance
from hipq_django.exceptions import InvalidAnswerError, InvalidJobError, JobNotFoundError
from hipq_django.models import Answer, Job
from hipq_django.sources import Received
from tests.factories import JobFactory
from tests.integration.sharding.conftest import Configure

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.django_db(databases=["default", "other"], transaction=True),
]


def running(**options: Any) -> Job:
    """Return a job that waits for its answer."""
    job = hipq.enqueue("ask", **options)
    values = {"state": "running", "attempt": 1, "worker": None}
    Job.objects.using(job.using).filter(pk=job.pk).update(**values)
    job.refresh_from_db()
    return job


def outcome(job: Job) -> str:
    job.refresh_from_db()
    return job.outcome


BY_KEY: list[dict[str, Any]] = [
    {"job_key": "A"},
    {"job_key": "a", "shard_key": "tenant-1"},
]
COMPLETE: list[Callable[..., Any]] = [
    lambda job_key, **more: hipq.complete("ask", job_key, 5, **more),
    lambda job_key, **more: hipq.receive_many([hipq.NewAnswer("ask", job_key, response=5, **more)]),
]


@pytest.mark.parametrize("named", BY_KEY, ids=str)
@pytest.mark.parametrize("complete", COMPLETE, ids=["complete", "receive_many"])
def test_an_answer_by_key_goes_where_the_key_leads(
    shards: None, named: dict[str, str], complete: Callable[..., Any]
) -> None:
    job = running(**named)

    complete(**named)

    assert (job.using, outcome(job)) == ("other", "succeeded")


def test_one_call_stores_answers_in_several_shards_in_their_order(shards: None) -> None:
    jobs = [running(job_key=key) for key in ("A", "a", "tenant-1")]

    stored = hipq.receive_many(
        [hipq.NewAnswer("ask", job.job_key, response=job.pk, message_id="m") for job in jobs]
    )

    assert [answer.using for answer in stored] == ["other", "default", "other"]
    assert [answer.job_id for answer in stored[:2]] == [job.pk for job in jobs[:2]]
    assert stored[2] == stored[0]  # the same id in the same shard


def test_a_row_and_an_id_find_their_shard(shards: None) -> None:
    job = running(shard_key="tenant-1")

    assert hipq.get_job(job.pk) == job
    assert hipq.progress(job, 40)
    assert hipq.complete(job, 5).using == "other"
    assert hipq.get_result(job.pk) == hipq.get_result(job) == 5
    assert hipq.requeue(job).using == "other"
    with pytest.raises(JobNotFoundError):
        hipq.get_job(job.pk + 1)  # an id of no shard


@pytest.mark.parametrize(
    "body", [{"response": 5}, {"progress": {"percent": 40}}, {"extend": 60}], ids=str
)
def test_a_callback_finds_its_job(shards: None, configure: Configure, body: dict[str, Any]) -> None:
    configure(CALLBACK_BASE_URL="https://shop.example")
    job = running(shard_key="tenant-1")
    path = hipq.callback_url(job).removeprefix("https://shop.example")

    reply = Client().post(path, json.dumps(body), content_type="application/json")

    assert reply.status_code == 200
    assert outcome(job) == ("succeeded" if "response" in body else "NONE")


def test_a_webhook_reads_the_shard_key(shards: None, rf: RequestFactory) -> None:
    job = running(job_key="a", shard_key="tenant-1")
    view = hipq.WebhookView.as_view(
        job_type="ask",
        key="order",
        shard_key="tenant",
        outcome=lambda payload: hipq.Response(payload["receipt"]),
        verify=hipq.NoVerification(),
    )
    message = {"order": "a", "tenant": "tenant-1", "receipt": 5}

    reply = view(rf.post("/", json.dumps(message), content_type="application/json"))

    assert (reply.status_code, outcome(job)) == (200, "succeeded")


def test_a_consumer_stores_messages_in_their_shards(shards: None) -> None:
    jobs = [running(job_key="a", shard_key=key) for key in ("tenant-1", "tenant-7")]

    def read(message: Received) -> hipq.NewAnswer:
        return hipq.NewAnswer("ask", "a", response=5, shard_key=message.body.decode())

    source: Any = SimpleNamespace(name="bank", map_function=lambda: read)
    bodies = ["tenant-1", "tenant-7", ""]
    Intake(get_instance(), source).take_all([Received(body.encode()) for body in bodies])

    assert [(job.using, outcome(job)) for job in jobs] == [
        ("other", "succeeded"),
        ("default", "succeeded"),
    ]
    assert Answer.objects.using("default").get(kind="malformed").problem.startswith("InvalidAnswer")


VERBS: list[Callable[..., Any]] = [
    hipq.cancel,
    lambda job_type, key, **more: hipq.reprioritize(job_type, key, 7, **more),
    hipq.explain,
]


@pytest.mark.parametrize("call", VERBS, ids=["cancel", "reprioritize", "explain"])
def test_a_verb_by_key_goes_where_the_key_leads(shards: None, call: Callable[..., Any]) -> None:
    hipq.enqueue("echo", job_key="a", shard_key="tenant-1")
    with pytest.raises(InvalidJobError, match="has no job with key 'a'"):
        call("echo", "a")

    assert call("echo", "a", shard_key="tenant-1")


def test_with_shard_key_in_the_setting_a_key_alone_is_not_enough(
    shards: None, configure: Configure
) -> None:
    configure(SHARD_KEY="tenant")
    job = running(job_data={"tenant": "tenant-1"}, job_key="a")
    said = "SHARD_KEY says where its jobs are; give shard_key, or use the callback's token."

    with pytest.raises(InvalidAnswerError) as refused:
        hipq.complete("ask", "a", {})
    assert str(refused.value) == f"complete 'ask': {said}"
    with pytest.raises(InvalidAnswerError, match="answer for 'ask': SHARD_KEY says"):
        hipq.receive_many([hipq.NewAnswer("ask", "a")])
    with pytest.raises(InvalidJobError) as refused_verb:
        hipq.cancel("ask", "a")
    assert str(refused_verb.value) == f"cancel 'ask': {said}"

    hipq.complete("ask", "a", {}, shard_key="tenant-1")
    assert outcome(job) == "succeeded"


def test_a_malformed_shard_key_stores_no_answer(shards: None) -> None:
    with pytest.raises(InvalidAnswerError, match="fail 'ask': shard_key ''"):
        hipq.fail("ask", "a", "no", shard_key="")

    assert not Answer.objects.using("default").exists()


def test_a_requeued_job_goes_where_its_key_leads(shards: None) -> None:
    values = {"state": "final", "outcome": "failed", "error": "no"}
    moved, left = (JobFactory.create(job_key=key, **values) for key in ("A", "a"))

    again = hipq.requeue(moved)
    many = hipq.requeue_many(Job.objects.using("default").final())

    assert (again.using, again.job_key, again.origin_id) == ("other", "A", None)
    assert again.queue.using == again.job_type._state.db == "other"
    assert many.skipped == {"its key leads to other by now; requeue it by itself": 1}
    assert [job.using for job in left.successors.all()] == ["default"]


def test_without_shards_all_of_it_can_be_written() -> None:
    job = running(job_key="a", shard_key="tenant-1")

    assert hipq.shard_of("tenant-1").alias == job.using
    assert hipq.explain("ask", "a", shard_key="tenant-1")
    hipq.complete("ask", "a", 5, shard_key="tenant-1")
    assert hipq.get_result(job.pk) == 5
