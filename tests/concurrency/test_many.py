"""The verbs on many jobs, while others do the same or hold rows."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import hipq_django as hipq
from hipq_django.api import pages
from hipq_django.api.pages import ManyResult
from hipq_django.database.locks import locked
from hipq_django.models import Job
from tests.concurrency.sessions import Session, errors_of, run_together
from tests.factories import JobFactory, JobTypeFactory

pytestmark = pytest.mark.django_db(transaction=True)

CALLERS, JOBS = 4, 12
BEGINS = {"requeue_many": "final", "cancel_many": "initial", "run_now_many": "initial"}


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PAGE_SIZE", 3)


def jobs(number: int, state: str) -> list[Job]:
    kind = JobTypeFactory.create()
    windows = {"time_windows": ["03:00-03:01"]}  # so that running them now changes something
    return [JobFactory.create(job_type=kind, state=state, **windows) for _ in range(number)]


def requeue_all() -> ManyResult:
    return hipq.requeue_many(Job.objects.filter(origin=None))


def test_of_many_that_requeue_the_same_jobs_each_is_requeued_by_one() -> None:
    origins = jobs(JOBS, "final")

    results = run_together(*[requeue_all] * CALLERS)

    assert errors_of(results) == []
    made = Counter(Job.objects.filter(state="initial").values_list("origin_id", flat=True))
    assert made == Counter(job.pk for job in origins)
    assert sum(result.done for result in results if isinstance(result, ManyResult)) == JOBS


@pytest.mark.postgres
@pytest.mark.parametrize("verb", BEGINS)
def test_what_another_transaction_has_locked_is_skipped_and_done_the_next_time(
    session: Session, verb: str
) -> None:
    _, held, *_ = jobs(5, BEGINS[verb])
    perform: Any = getattr(hipq, verb)
    session.begin()
    session(lambda: list(locked(Job.objects.filter(pk=held.pk))))

    result = perform(Job.objects.filter(origin=None))

    assert result == ManyResult(4, {"another transaction has locked it, or it was pruned": 1})
    session.roll_back()
    assert perform(Job.objects.filter(pk=held.pk)) == ManyResult(1)
