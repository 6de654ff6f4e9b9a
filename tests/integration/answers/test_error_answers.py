"""Error answers that come when the attempt has failed already: by a timeout, say."""

from __future__ import annotations

from typing import Any

import pytest

import hipq_django as hipq
from hipq_django.conf.instances import get_instance
from hipq_django.maintenance import recovery
from hipq_django.models import Job
from tests.declaring import Declare
from tests.hand_worker import HandWorker
from tests.running import run_due_jobs

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]


@pytest.fixture
def seen() -> list[Any]:
    """The errors about which the retry handler was asked."""
    return []


@pytest.fixture
def timed_out(declare: Declare, frozen_time: Any, seen: list[Any]) -> Job:
    """A job whose attempt has timed out; its retry handler has not been asked."""
    ask = declare("asks", timeout=60)(lambda job: hipq.WAIT)

    @ask.on_error
    def after_error(job: Job) -> Any:
        seen.append(job.error)
        return hipq.RetryIn(600) if "Timeout" in str(job.error) else hipq.GiveUp()

    job = ask.enqueue(job_key="k")
    run_due_jobs()
    frozen_time.shift(61)
    recovery.time_out_overdue(get_instance())
    job.refresh_from_db()
    assert (job.state, job.attempts.get().kind) == ("error", "timed_out")
    return job


def end_of(job: Job) -> tuple[Any, ...]:
    job.refresh_from_db()
    kinds = list(job.attempts.values_list("attempt", "kind", "error"))
    return job.state, job.outcome, job.error, kinds


DECLINED = ("final", "failed", "declined", [(1, "answered", "declined")])


@pytest.mark.parametrize("again", ["the same worker", "another worker"])
def test_a_decision_about_the_timeout_that_is_under_way_is_dropped(
    timed_out: Job, seen: list[Any], again: str
) -> None:
    """Neither is lost: not the answer, and not that it is to be decided about."""
    worker = HandWorker()
    worker.run_pass()
    assert [claim.phase for claim in worker.claims] == ["decision"]

    answer = hipq.fail("asks", "k", error="declined")
    other = worker if again == "the same worker" else HandWorker()
    other.run_pass()
    worker.execute()
    worker.save()
    between = end_of(timed_out)
    other.run_until_idle()
    other.execute()
    other.save()

    assert answer.status == "accepted"
    assert between[0] == "error"
    assert seen[-1] == "declined"
    assert end_of(timed_out) == DECLINED
