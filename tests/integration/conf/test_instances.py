"""Several instances on several databases, which do not see each other."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.conf.instances import get_instance
from hipq_django.database import clock
from hipq_django.maintenance import recovery
from hipq_django.models import Answer, Job, JobType, Queue, Worker
from hipq_django.testing import assert_enqueued
from tests.declaring import Declare
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db(databases=["default", "other"])

MODELS = (Job, JobType, Queue, Answer, Worker)


@pytest.fixture
def ran(declare: Declare) -> list[str]:
    """The instances whose job type "charge" ran, in their order."""
    ran: list[str] = []
    for instance in ("default", "other"):
        declare("charge", instance=instance)(lambda job, name=instance: ran.append(name))
    return ran


def counts(using: str) -> list[int]:
    return [model.objects.using(using).count() for model in MODELS]


@pytest.mark.parametrize(
    "enqueue",
    [
        lambda charge: hipq.enqueue("charge", job_key="k", instance="other"),
        lambda charge: hipq.enqueue_many([hipq.NewJob("charge")], instance="other")[0],
        lambda charge: charge.enqueue(),
    ],
    ids=["by name", "many", "of the type"],
)
def test_a_job_is_in_the_database_of_its_instance(
    declare: Declare, enqueue: Callable[[Any], Job]
) -> None:
    """T33."""
    charge = declare("charge", instance="other")(lambda job: None)

    job = enqueue(charge)

    assert job.using == "other"
    assert Job.objects.using("other").get() == job
    assert counts("default") == [0] * len(MODELS)


def test_a_worker_serves_its_own_instance_only(ran: list[str]) -> None:
    """T33."""
    hipq.enqueue("charge")
    there = hipq.enqueue("charge", instance="other")

    number = run_due_jobs(instance="other")

    there.refresh_from_db()
    assert (number, ran, there.outcome) == (1, ["other"], "succeeded")
    assert Job.objects.get().state == "initial"


def test_verbs_and_answers_act_in_the_database_of_their_instance(
    declare: Declare, client: Any, settings: Settings
) -> None:
    """T33."""
    settings.HIPQ = {"other": {"DATABASE": "other", "CALLBACK_BASE_URL": "http://testserver"}}
    declare("patient", instance="other")(lambda job: hipq.WAIT)
    later = clock.now("other") + timedelta(days=1)
    job = hipq.enqueue("patient", job_key="k", instance="other", scheduled_run_time=later)

    hipq.run_now(job)
    run_due_jobs(instance="other")
    hipq.complete("patient", "k", response="paid", instance="other")
    again = hipq.requeue(Job.objects.using("other").get())
    run_due_jobs(instance="other")
    again.refresh_from_db()
    url = hipq.callback_url(again)
    posted = client.post(url, '{"response": "paid"}', content_type="application/json")
    hipq.cancel(hipq.requeue(job))

    assert posted.status_code == 200
    outcomes = Job.objects.using("other").order_by("pk").values_list("outcome", flat=True)
    assert list(outcomes) == ["succeeded", "succeeded", "cancelled"]
    assert counts("default") == [0] * len(MODELS)


def test_recovery_looks_after_its_own_instance_only() -> None:
    """T33."""
    old = clock.now("default") - timedelta(hours=1)
    for using in ("default", "other"):
        Worker.objects.using(using).create(instance=using, name="w", heartbeat_time=old)

    recovery.recover_lost(get_instance("other"))

    assert Worker.objects.using("other").get().state == "lost"
    assert Worker.objects.get().state == "running"


def test_the_same_key_lives_once_in_each_instance(ran: list[str]) -> None:
    """T33."""
    for instance in ("default", "other"):
        hipq.enqueue("charge", job_key="k", instance=instance)
        with pytest.raises(hipq.DuplicateJobKeyError) as caught:
            hipq.enqueue("charge", job_key="k", instance=instance)
        assert caught.value.job.using == instance


def test_two_instances_may_share_a_database(settings: Settings, declare: Declare) -> None:
    """T33: names separate them."""
    settings.HIPQ = {"default": {}, "shop": {"DATABASE": "default"}}
    ran: list[str] = []
    for instance in ("default", "shop"):
        declare("charge", instance=instance)(lambda job, name=instance: ran.append(name))
        hipq.enqueue("charge", job_key="k", instance=instance)

    here = run_due_jobs(instance="shop")

    assert (here, ran) == (1, ["shop"])
    assert Queue.objects.filter(name="default").count() == 2
    assert Job.objects.live().get().queue.instance == "default"


def test_the_test_kit_looks_into_the_instance_it_is_given(ran: list[str]) -> None:
    job = hipq.enqueue("charge", job_key="k", instance="other")

    assert assert_enqueued("charge", job_key="k", instance="other") == job
    with pytest.raises(AssertionError, match="no job enqueued"):
        assert_enqueued("charge", job_key="k")
