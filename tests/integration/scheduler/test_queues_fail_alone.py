"""A queue, or a row of it, that cannot be read stops neither the others nor the worker."""

from __future__ import annotations

import logging
from asyncio import CancelledError
from typing import Any, NoReturn

import pytest
from django.db import OperationalError

import hipq_django as hipq
from hipq_django.exceptions import ConfigurationError
from hipq_django.models import Job, JobType, Queue
from hipq_django.scheduler import admission
from tests.declaring import Declare
from tests.hand_worker import HandWorker
from tests.integration.conftest import ConfigureQueue

pytestmark = pytest.mark.django_db


def outcome(job: Job) -> str:
    job.refresh_from_db()
    return str(job.outcome)


def problem(name: str = "default") -> str:
    return Queue.objects.get(name=name).throttler_problem


@pytest.fixture
def healthy() -> Job:
    """A due job of another queue."""
    return hipq.enqueue("echo", queue="healthy")


@pytest.fixture
def zoned(declare: Declare) -> None:
    """A job type with a zone and windows that are always open."""
    declare("zoned", time_windows=["00:00-24:00"])(lambda job: None)


def lose_zone() -> None:
    """Give the job type a zone that this machine's database of zones lacks."""
    JobType.objects.filter(name="zoned").update(time_zone="Europe/Atlantis")


def test_a_job_whose_zone_is_unknown_stops_no_other(zoned: None, healthy: Job) -> None:
    broken, behind = hipq.enqueue("zoned"), hipq.enqueue("echo")
    lose_zone()

    HandWorker().run_until_idle()

    assert (outcome(broken), outcome(behind), outcome(healthy)) == (
        *("NONE", "succeeded", "succeeded"),
    )
    assert problem().startswith(f"job {broken.pk} cannot start: ConfigurationError: job type ")
    assert any("Europe/Atlantis" in reason.text for reason in hipq.explain(broken))


@pytest.mark.conformance
def test_many_rows_that_cannot_be_read_hide_nobody_behind_them(
    zoned: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "PAGE_SIZE", 2)
    monkeypatch.setattr(admission, "MAX_PAGES", 2)
    broken = [hipq.enqueue("zoned") for _ in range(9)]
    behind = hipq.enqueue("echo")
    lose_zone()
    worker = HandWorker()

    for _ in range(9):
        worker.work()

    assert outcome(behind) == "succeeded"
    assert {outcome(job) for job in broken} == {"NONE"}


class Hook:
    """A throttler whose memory fails."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __call__(self, queue: Any, now: Any, running: Any, candidates: Any) -> list[Any]:
        """Let all run."""
        return [hipq.Run() for _ in candidates]

    def admitted(self, queue: Any, now: Any, count: int, latest: Any) -> NoReturn:
        """Fail to write it down."""
        raise self._error


@pytest.mark.parametrize("error", [CancelledError("a"), OperationalError("another one is away")])
def test_an_admitted_hook_that_raises_holds_its_queue(
    configure_queue: ConfigureQueue,
    healthy: Job,
    caplog: pytest.LogCaptureFixture,
    error: BaseException,
) -> None:
    configure_queue(Hook(error))
    job = hipq.enqueue("echo")
    worker = HandWorker()

    with caplog.at_level(logging.ERROR, logger="hipq_django"):
        for _ in range(3):
            worker.work()

    assert (outcome(job), outcome(healthy)) == ("NONE", "succeeded")
    text = f"the hook admitted of a throttler raised {type(error).__name__}: {error}"
    assert problem() == text
    assert [
        one.getMessage() for one in caplog.records if one.__dict__["event"] == "queue_blocked"
    ] == [f'event=queue_blocked queue=default msg="{text}"']


def test_an_enqueue_where_the_zone_is_unknown_says_what_to_do(declare: Declare) -> None:
    declare("zoned", time_windows=["08:00-17:00"], time_zone="Europe/Berlin")(lambda job: None)
    hipq.enqueue("zoned")
    JobType.objects.filter(name="zoned").update(time_zone="Europe/Atlantis")

    with pytest.raises(ConfigurationError, match=r"Europe/Atlantis.*tzdata"):
        hipq.enqueue("zoned")
    assert Job.objects.count() == 1
