"""Bringing the rows of queues and job types up to the code waits for nobody's transaction."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.models import Job, JobType, Queue
from hipq_django.models.catalog import get_queue, sync
from tests.concurrency.sessions import Session
from tests.declaring import Declare

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite has no locks of rows"),
]

LIMIT_SECONDS = 5.0
"""Who waits for a lock here waits for half a minute; who is only slow is done long before."""


def in_time(step: Callable[[], Any]) -> Any:
    began = time.monotonic()
    given = step()
    assert time.monotonic() - began < LIMIT_SECONDS
    return given


def handler(job: Job) -> None:
    """Do nothing."""


@pytest.fixture(autouse=True)
def rows(declare: Declare, settings: Settings) -> None:
    """A queue and a job type as they were before a deploy, which changes them and adds others."""
    settings.HIPQ = {"default": {"QUEUES": {"bank": {"THROTTLE_LIMIT": 1}}}}
    declare("charge", priority=1)(handler)
    sync("default")
    settings.HIPQ = {"default": {"QUEUES": {"bank": {"THROTTLE_LIMIT": 2}, "post": {}}}}
    declare("charge", priority=2)(handler)
    declare("send", queue="post")(handler)
    declare("weigh", queue="post")(handler)


def limit() -> int:
    return int(Queue.objects.get(name="bank").throttle_limit)


def priority() -> int:
    return JobType.objects.get(name="charge").default_priority


def names(model: type[Queue | JobType]) -> set[str]:
    return set(model.objects.values_list("name", flat=True))


def lock(session: Session, row: Queue | JobType) -> None:
    session.begin()
    session(lambda: type(row).objects.select_for_update(no_key=True).get(pk=row.pk))


@pytest.mark.parametrize(
    ("model", "name", "left", "seen"),
    [(Queue, "bank", "queue bank", (1, 2)), (JobType, "charge", "job type charge", (2, 1))],
)
def test_a_locked_row_is_left_for_later(
    session: Session, model: Any, name: str, left: str, seen: tuple[int, int]
) -> None:
    lock(session, model.objects.get(name=name))

    assert in_time(lambda: sync("default")) == [left]
    assert (limit(), priority()) == seen
    session.roll_back()

    assert sync("default") == []
    assert (limit(), priority()) == (2, 2)


def test_a_queue_that_somebody_is_creating_is_left_for_later(session: Session) -> None:
    """The first job of a queue creates it, in a transaction that may take long."""
    session.begin()
    session(lambda: hipq.enqueue("send"))

    left = in_time(lambda: sync("default"))
    session.roll_back()

    assert left == ["queue post", "job type send", "job type weigh"]
    assert (limit(), priority()) == (2, 2)
    assert sync("default") == []
    assert names(JobType) >= {"send", "weigh"}


def test_a_job_type_that_somebody_is_creating_is_left_for_later(session: Session) -> None:
    get_queue("default", "post")
    session.begin()
    session(lambda: hipq.enqueue("send"))

    left = in_time(lambda: sync("default"))
    there = names(JobType)
    session.commit()

    assert left == ["job type send"]
    assert "weigh" in there
    assert "send" not in there
    assert sync("default") == []


def test_an_enqueue_waits_for_nobody_to_say_what_its_arguments_are(
    session: Session, declare: Declare
) -> None:
    """A worker says it when it starts."""
    task = declare.task("shop.weigh")(weigh)
    sync("default")
    JobType.objects.filter(name="shop.weigh").update(signature="(before)")
    lock(session, JobType.objects.get(name="shop.weigh"))

    in_time(lambda: task.enqueue(1))
    during = JobType.objects.get(name="shop.weigh").signature
    session.roll_back()
    sync("default")

    assert during == "(before)"
    assert JobType.objects.get(name="shop.weigh").signature == task.signature


def weigh(number: int) -> None:
    """Do nothing."""
