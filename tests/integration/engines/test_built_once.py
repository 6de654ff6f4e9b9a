"""Queries whose text is built once fetch what the ORM fetches."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import F, QuerySet
from django.utils import timezone

from hipq_django.database.built_once import built_once
from hipq_django.database.lookups import ids_in
from hipq_django.models import Job
from tests.factories import JobFactory

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]

NOW = timezone.now()


def test_rows_of_any_ids_have_their_fields_and_annotations() -> None:
    built: list[Sequence[int]] = []

    @built_once
    def named(ids: Sequence[int], using: str) -> QuerySet[Job]:
        built.append(ids)
        rows = Job.objects.using(using).filter(ids_in("pk", ids)).order_by("pk")
        rows = rows.only("id", "job_data", "throttle_factor", "create_time")
        return rows.annotate(kind=F("job_type__name"), others=F("queue__name"))

    jobs = [JobFactory.create(job_data={"number": [n, 1.5, None]}) for n in range(3)]
    assert named([], "default") == []
    assert named([jobs[0].pk], "default") == jobs[:1]
    found: Any = named({jobs[2].pk, jobs[1].pk}, "default")

    assert found == jobs[1:]
    assert len(built) == 1
    for row, job in zip(found, jobs[1:], strict=True):
        job.refresh_from_db()
        assert (row.kind, row.others) == (job.job_type.name, job.queue.name)
        assert (row.job_data, row.throttle_factor) == (job.job_data, job.throttle_factor)
        assert row.create_time == job.create_time
        assert row.using == "default"
        assert row.get_deferred_fields() >= {"timeout", "state"}


@built_once
def _later(key: str, moment: datetime, priority: int, using: str) -> Any:
    rows = Job.objects.using(using).filter(job_key=key, scheduled_run_time__gt=moment)
    rows = rows.filter(priority__gte=priority, state="initial").exclude(scheduled_run_time=moment)
    return rows.order_by("pk").values_list("pk", "scheduled_run_time")


def test_moments_texts_and_numbers_may_stand_at_several_places() -> None:
    jobs = [
        JobFactory.create(job_key=key, priority=n, scheduled_run_time=NOW + timedelta(hours=n))
        for n, key in enumerate(["a", "b", "a", "a%s"])
    ]
    wanted = {
        ("a", NOW, 0): [jobs[2]],
        ("a", NOW - timedelta(hours=1), 0): [jobs[0], jobs[2]],
        ("b", NOW, 2): [],
        ("a%s", NOW, -5): [jobs[3]],
    }
    for (key, moment, priority), rows in wanted.items():
        found = _later(key, moment, priority, "default")
        assert found == [(job.pk, job.scheduled_run_time) for job in rows]


def test_related_rows_are_read_with_it(django_assert_num_queries: Any) -> None:
    @built_once
    def joined(pk: int, using: str) -> QuerySet[Job]:
        rows = Job.objects.using(using).filter(pk=pk)
        return rows.select_related("queue", "job_type__queue", "parent")

    parent = JobFactory.create()
    jobs = [JobFactory.create(parent=parent), JobFactory.create()]
    joined(0, "default")

    for job in jobs:
        with django_assert_num_queries(1):
            [found] = joined(job.pk, "default")
            of_type = found.job_type.queue
            same = found == job, found.queue == job.queue, found.parent == job.parent
        assert (same, of_type) == ((True, True, True), job.job_type.queue)
        assert (found.queue.create_time, found.using) == (job.queue.create_time, "default")


def test_what_is_always_the_same_stands_in_the_text_on_sqlite() -> None:
    """Else SQLite would plan a query anew each time that serves itself with a partial index."""
    words = ["it's", 'a "100%" %s', "%%"]

    @built_once
    def alike(pk: int, using: str) -> Any:
        rows = Job.objects.using(using).filter(pk__gte=pk, job_key__in=words, prefetched=False)
        rows = rows.exclude(state="final").filter(attempt=0).order_by("pk")
        return rows.values_list("job_key", flat=True)

    for word in words:
        JobFactory.create(job_key=word)
        JobFactory.create(job_key=word, prefetched=True)
    given: list[Any] = []

    def note(execute: Any, sql: str, params: Any, *others: Any) -> Any:
        given.append(list(params))
        return execute(sql, params, *others)

    with connection.execute_wrapper(note):
        assert alike(1, "default") == words

    if connection.vendor == "sqlite":
        assert given == [[1, 0]]
