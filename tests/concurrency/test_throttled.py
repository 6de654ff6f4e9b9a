"""Jobs that change, or are locked, while throttlers are asked about them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.domain.throttling import Verdict
from hipq_django.models import Job, Queue
from tests.concurrency.sessions import Session
from tests.hand_worker import HandWorker
from tests.testapp import limits

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]


@pytest.fixture
def meanwhile(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let something happen while a throttler is asked for the first time; it lets all run."""

    def let(happen: Callable[[], Any]) -> None:
        steps = [happen]

        def throttler(queue: Queue, now: datetime, running: Any, candidates: Any) -> list[Verdict]:
            while steps:
                steps.pop()()
            return [hipq.Run()] * len(candidates)

        monkeypatch.setattr(limits, "throttler_0", throttler, raising=False)
        paths = [f"{limits.__name__}.throttler_0"]
        settings.HIPQ = {"default": {"QUEUES": {"default": {"THROTTLERS": paths}}}}

    return let


def test_a_job_that_changes_meanwhile_is_asked_about_again(
    session: Session, meanwhile: Callable[..., None]
) -> None:
    changed, other = hipq.enqueue("echo"), hipq.enqueue("echo")
    rows = Job.objects.filter(pk=changed.pk)
    meanwhile(lambda: session(lambda: rows.update(throttle_factor=7)))
    worker = HandWorker()

    first, second = worker.run_pass(), worker.run_pass()

    assert (first, second) == ([other], [changed])
    assert second[0].throttle_factor == 7


def test_a_job_that_somebody_has_locked_is_left(
    session: Session, meanwhile: Callable[..., None]
) -> None:
    """Neither is it waited for, nor put off to when its window opens."""
    meanwhile(lambda: None)
    opens = timezone.now() + timedelta(hours=12)
    window = f"{opens:%H:%M}-{opens + timedelta(minutes=1):%H:%M}"
    closed = hipq.enqueue("echo", time_windows=[window])
    Job.objects.update(scheduled_run_time=opens - timedelta(days=1), rank=0)
    due, free = hipq.enqueue("echo"), hipq.enqueue("echo")
    session.begin()
    session(lambda: list(Job.objects.select_for_update().exclude(pk=free.pk)))

    claimed = HandWorker().run_pass()

    assert claimed == [free]
    assert Job.objects.get(pk=closed.pk).scheduled_run_time < timezone.now()
    assert Job.objects.get(pk=due.pk).state == "initial"
