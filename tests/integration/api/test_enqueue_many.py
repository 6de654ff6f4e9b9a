"""Creating many jobs: all or none, in few statements."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

import hipq_django as hipq
from hipq_django.models import Job

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]


def new_jobs(number: int) -> list[hipq.NewJob]:
    return [hipq.NewJob("echo", {"n": n}, job_key=f"key-{n}") for n in range(number)]


def test_all_jobs_are_created_in_their_order() -> None:
    jobs = hipq.enqueue_many(new_jobs(5))

    assert [job.job_data["n"] for job in jobs] == list(range(5))
    assert [job.pk for job in jobs] == sorted(job.pk for job in jobs)
    assert [Job.objects.get(pk=job.pk).job_data for job in jobs] == [j.job_data for j in jobs]


def test_many_jobs_equal_jobs_created_one_by_one(frozen_time: Any) -> None:
    single = hipq.enqueue("echo", {"n": 0})
    (many,) = hipq.enqueue_many([hipq.NewJob("echo", {"n": 0})])
    single.refresh_from_db()
    many.refresh_from_db()

    names = {field.attname for field in Job._meta.concrete_fields} - {"id"}
    assert {n: getattr(many, n) for n in names} == {n: getattr(single, n) for n in names}


@pytest.mark.postgres
def test_ten_thousand_jobs_are_a_handful_of_statements() -> None:
    hipq.enqueue("echo")

    with CaptureQueriesContext(connection) as queries:
        hipq.enqueue_many(new_jobs(10_000))

    assert Job.objects.count() == 10_001
    assert len(queries) <= 10


def test_a_key_that_is_given_twice_creates_nothing() -> None:
    twice = [*new_jobs(3), hipq.NewJob("echo", job_key="key-1")]

    with pytest.raises(hipq.DuplicateJobKeyError) as raised:
        hipq.enqueue_many(twice)

    assert str(raised.value) == (
        "enqueue_many: two of the jobs of type 'echo' have key 'key-1'; nothing was created. Give "
        "each its own."
    )
    assert Job.objects.count() == 0


@pytest.mark.parametrize("key", [None, "k"])
def test_the_garbage_collector_goes_on_afterwards(key: str | None) -> None:
    hipq.enqueue_many([hipq.NewJob("echo", job_key=key)])
    with pytest.raises(hipq.InvalidJobError):
        hipq.enqueue_many([hipq.NewJob("echo", object(), job_key=key)])

    assert gc.isenabled()
