"""Whether other systems have stopped answering, counted from the tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

import hipq_django as hipq
from hipq_django import testing
from hipq_django.database import clock
from hipq_django.models import Answer, Job, JobType, Link, Queue
from hipq_django.monitoring import answering
from hipq_django.monitoring.answering import SPANS, Unanswered
from hipq_django.monitoring.endings import Trends
from tests.admin_pages import html, list_url, page_url
from tests.declaring import Declare
from tests.factories import AnswerFactory, JobFactory, JobTypeFactory, WorkerFactory

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """The kit leaves nothing behind."""
    yield
    testing.reset()


def ago(**span: float) -> Any:
    return clock.now("default") - timedelta(**span)


def answered(kind: JobType, number: int = 1, *, waited: float = 5.0, **end: float) -> None:
    """Let so many jobs of a type have been answered, so long ago, after so many seconds."""
    moment = ago(**end)
    claimed = {"timeout": 600, "deadline": moment + timedelta(seconds=600 - waited)}
    for _ in range(number):
        job = JobFactory.create(job_type=kind, state="final", update_time=moment, **claimed)
        AnswerFactory.create(job=job, status="accepted", receive_time=moment)


def waiting(kind: JobType, number: int = 10, *, values: Any = None, **since: float) -> list[Job]:
    """Let so many jobs of a type have waited for so long."""
    made = {"state": "running", "update_time": ago(**since), **(values or {})}
    return [JobFactory.create(job_type=kind, **made) for _ in range(number)]


def of(row: JobType | Queue) -> Unanswered:
    queues = Queue.objects.using("default")
    return Trends(queues, clock.now("default"), "default").of(row).unanswered


@pytest.mark.conformance
def test_jobs_sent_since_the_last_answer_that_wait_far_longer_than_usual_are_counted() -> None:
    kind = JobTypeFactory.create()
    answered(kind, 19, waited=5, hours=3)
    answered(kind, 1, waited=30, hours=2)
    waiting(kind, 12, minutes=16)
    waiting(kind, 2, minutes=14)

    found = of(kind)

    assert (found.number, round(found.longest_seconds)) == (12, 30)
    assert found.quiet_seconds == pytest.approx(7_200, abs=30)
    assert of(kind.queue).number == 12


def test_one_answer_to_a_later_job_shows_that_the_others_are_lost_ones() -> None:
    kind = JobTypeFactory.create()
    answered(kind, 20, hours=2)
    waiting(kind, 12, minutes=50)
    assert of(kind).number == 12

    answered(kind, 1, minutes=40)

    assert of(kind).number == 0


def test_an_answer_to_a_job_that_has_not_ended_is_one_too() -> None:
    kind = JobTypeFactory.create()
    answered(kind, 20, hours=2)
    waiting(kind, 12, minutes=50)
    job = JobFactory.create(job_type=kind, state="retry")

    AnswerFactory.create(job=job, status="accepted", kind="error", receive_time=ago(minutes=40))

    assert of(kind).number == 0


def test_answers_that_usually_take_long_are_waited_for() -> None:
    kind = JobTypeFactory.create()
    answered(kind, 20, waited=3_600, days=3)
    waiting(kind, 12, hours=2)
    usual = of(kind)
    assert (usual.number, round(usual.longest_seconds)) == (0, 3_600)

    waiting(kind, 11, hours=4)

    assert of(kind).number == 11


def test_where_too_few_were_answered_nothing_is_known() -> None:
    kind = JobTypeFactory.create()
    answered(kind, 19, hours=2)
    waiting(kind, 50, hours=20)

    assert of(kind) == of(kind.queue) == Unanswered()


def test_other_jobs_of_the_queue_do_not_hide_the_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither those that end without an answer, nor those that somebody else answers."""
    monkeypatch.setattr(answering, "SAMPLE", 25)
    charge = JobTypeFactory.create()
    plain, refund = (JobTypeFactory.create(queue=charge.queue) for _ in range(2))
    answered(charge, 20, hours=5)
    waiting(charge, 10, minutes=30)
    answered(refund, 25, minutes=1)
    waiting(refund, 10, minutes=30)
    for _ in range(25):
        JobFactory.create(job_type=plain, state="final")

    assert (of(charge).number, of(refund).number, of(plain).number) == (10, 0, 0)
    assert of(charge.queue).number == 10


def test_only_jobs_that_somebody_else_is_to_answer_are_counted() -> None:
    kind = JobTypeFactory.create()
    answered(kind, 20, hours=2)
    waiting(kind, 5, minutes=30)
    waiting(kind, 5, minutes=30, values={"has_pending_answer": True})
    waiting(kind, 5, minutes=30, values={"state": "retry"})
    for job in waiting(kind, 5, minutes=30):  # it gathers a job of this project
        Link.objects.create(job=job, needs_job=JobFactory.create(), on="part", part="1")

    assert of(kind).number == 5


@pytest.mark.parametrize("number", [0, len(SPANS) - 1])
def test_what_is_usual_is_known_for_ten_days(number: int) -> None:
    kind = JobTypeFactory.create()
    answered(kind, 20, seconds=SPANS[number].total_seconds() - 60)
    waiting(kind, 10, minutes=20)

    assert of(kind).number == 10


def test_a_partner_that_falls_silent(declare: Declare) -> None:
    declare("charge")(lambda job: hipq.WAIT)
    hipq.enqueue_many(hipq.NewJob("charge", job_key=f"answered-{n}") for n in range(20))
    testing.run_due_jobs()
    for number in range(20):
        hipq.complete("charge", f"answered-{number}", "paid")
    assert Answer.objects.filter(status="accepted").count() == 20
    testing.run_for(minutes=1)
    hipq.enqueue_many([hipq.NewJob("charge")] * 10)
    testing.run_due_jobs()

    kind = JobType.objects.get(name="charge")
    with testing.travel(minutes=14):
        assert of(kind).number == 0
    with testing.travel(minutes=16):
        assert of(kind).number == 10


def test_the_cost_does_not_grow_with_queues_and_types() -> None:
    def queries() -> int:
        queues = list(Queue.objects.all())
        with CaptureQueriesContext(connection) as captured:
            Trends(queues, clock.now("default"), "default")
        return len(captured)

    counts = []
    for _ in range(2):
        kind = JobTypeFactory.create()
        answered(kind, 20, hours=2)
        waiting(kind, 10, minutes=30)
        counts.append(queries())

    assert counts == [5, 5]


# Where it is told


def said(*arguments: str) -> str:
    out = StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()


def lines() -> list[str]:
    return [" ".join(line.split()) for line in said("hipq_status").splitlines()]


def test_a_silent_queue_without_limit_is_told_everywhere(admin_client: Client) -> None:
    WorkerFactory.create()
    kind, fine = JobTypeFactory.create(name="ask"), JobTypeFactory.create(name="echo")
    answered(kind, 20, hours=2)
    waiting(kind, 10, minutes=30)
    waiting(fine, 10, minutes=30)

    status = json.loads(said("hipq_status", "--json"))

    rows = [*status["queues"], *status["job_types"]]
    assert {row["name"] for row in rows if row["unanswered"]} == {kind.queue.name, "ask"}
    assert [line for line in lines() if line.endswith("served, not answered")]
    assert f"queue {kind.queue.name} 0 0 0 0 none succeeded" not in lines()
    assert "job type ask 0 0 0 0 not answered" in lines()
    for row, is_told in ((kind, True), (kind.queue, True), (fine, False), (fine.queue, False)):
        assert (">not answered<" in html(admin_client, page_url(row))) is is_told
        assert html(admin_client, list_url(type(row))).count(">not answered<") == 1


def test_a_full_limit_is_told_before_it_is_known_what_is_usual(admin_client: Client) -> None:
    WorkerFactory.create()
    kind = JobTypeFactory.create(name="ask")
    Queue.objects.update(throttle_limit=2)
    waiting(kind, 2, minutes=30)
    JobFactory.create(job_type=kind, scheduled_run_time=ago(minutes=20))

    queues = json.loads(said("hipq_status", "--json"))["queues"]

    assert [row["name"] for row in queues if row["unanswered"]] == [kind.queue.name]
    assert ">not answered<" in html(admin_client, page_url(kind.queue))
    assert ">not answered<" in html(admin_client, list_url(Queue))
    assert ">not answered<" not in html(admin_client, list_url(JobType))
