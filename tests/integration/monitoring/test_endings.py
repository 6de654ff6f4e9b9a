"""How the jobs of queues and types have ended, counted from the tables."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from hipq_django.models import JobType, Queue
from hipq_django.monitoring import endings
from hipq_django.monitoring.endings import Endings, Trends
from tests.factories import JobFactory, JobTypeFactory

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]


def ended(kind: JobType, outcome: str, number: int = 1, **ago: float) -> None:
    """Let so many jobs of a type have ended, so long ago."""
    moment = timezone.now() - timedelta(**ago)
    values = {"error": "boom"} if outcome in ("failed", "timed_out") else {}
    for _ in range(number):
        JobFactory.create(
            job_type=kind, state="final", outcome=outcome, update_time=moment, **values
        )


def trends() -> Trends:
    return Trends(list(Queue.objects.all()), timezone.now(), "default")


def test_the_last_hour_is_counted_beside_the_day_before(monkeypatch: pytest.MonkeyPatch) -> None:
    charge, refund = JobTypeFactory.create(), JobTypeFactory.create()
    ended(charge, "succeeded", 2, minutes=10)
    ended(charge, "failed", 3, minutes=59)
    ended(charge, "timed_out", minutes=1)
    ended(charge, "cancelled", minutes=1)
    ended(charge, "failed", minutes=61)
    ended(charge, "succeeded", hours=24)
    ended(charge, "failed", hours=26)
    ended(refund, "succeeded", minutes=5)

    trend = trends().of(charge)

    assert trend.lately == Endings(succeeded=2, failed=3, timed_out=1)
    assert trend.usually == Endings(succeeded=1, failed=1)
    assert trends().of(charge.queue) == trend
    assert trends().of(refund).lately == Endings(succeeded=1)
    assert not trend.is_capped
    monkeypatch.setattr(endings, "SAMPLE", 6)
    assert trends().of(charge).is_capped


def test_types_that_share_a_queue_are_counted_apart() -> None:
    charge = JobTypeFactory.create()
    refund = JobTypeFactory.create(queue=charge.queue)
    ended(charge, "failed", 2)
    ended(refund, "succeeded", 1)

    counted = trends()

    assert counted.of(charge).lately == Endings(failed=2)
    assert counted.of(refund).lately == Endings(succeeded=1)
    assert counted.of(charge.queue).lately == Endings(succeeded=1, failed=2)


def test_the_cost_does_not_grow_with_queues_and_types(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    for _ in range(5):
        ended(JobTypeFactory.create(), "failed")
    queues = list(Queue.objects.all())

    with django_assert_num_queries(1):
        Trends(queues, timezone.now(), "default")
