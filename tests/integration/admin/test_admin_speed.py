"""The admin with many jobs: every page asks few questions, and none that counts them all."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django import DjangoDbBlocker

from hipq_django.models import Job, JobType, Queue
from hipq_django.monitoring.counts import COUNT_LIMIT
from hipq_django.testing import travel
from tests.admin_pages import html, list_url, page_url
from tests.copying import analyze, copy
from tests.factories import AttemptFactory, JobFactory, JobTypeFactory, QueueFactory
from tests.plans import assert_good, watched_plans

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]

JOBS = 24_000
MAX_QUERIES = 16
SCAN = re.compile(r"Seq Scan on hipq_job |SCAN hipq_job$", re.MULTILINE)


@pytest.fixture(scope="module")
def many_jobs(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[list[Job]]:
    """More jobs with keys than pages count, of which the first half is final; the ends of them."""
    with django_db_blocker.unblock():
        first = JobFactory.create(state="final", job_key="order-0")
        copy(first, JOBS // 2, job_key="'order-' || n")
        waiting = JobFactory.create(job_type=first.job_type, job_key="order")
        copy(waiting, JOBS // 2, job_key=f"'order-' || (n + {JOBS // 2})")
        analyze()
        yield [first, Job.objects.latest("pk")]
        for model in (Job, JobType, Queue):
            model._default_manager.all()._raw_delete("default")


def queries_of(client: Client, url: str, **query: object) -> list[str]:
    """Open a page and return what it asked the database."""
    with CaptureQueriesContext(connection) as captured:
        html(client, url, **query)
    return [query["sql"] for query in captured.captured_queries]


def counts_all_jobs(statement: str) -> bool:
    """Whether one of the statement's counts is of jobs and has no bound."""
    counts = statement.split("COUNT(")[1:]
    return any('"hipq_job"' in count and "LIMIT" not in count for count in counts)


def plan_of(statement: str) -> str:
    explain = "EXPLAIN QUERY PLAN" if connection.vendor == "sqlite" else "EXPLAIN"
    with connection.cursor() as cursor:
        cursor.execute(f"{explain} {statement}")
        return "\n".join(str(row[-1]) for row in cursor.fetchall())


def about_jobs(statements: Iterable[str]) -> list[str]:
    return [statement for statement in statements if '"hipq_job"' in statement]


def test_the_number_of_queries_does_not_grow_with_the_rows(admin_client: Client) -> None:
    def make(number: int) -> None:
        for _ in range(number):
            queue = QueueFactory.create()
            job = JobFactory.create(state="retry", job_type=JobTypeFactory.create(queue=queue))
            AttemptFactory.create(job=job)

    counts = []
    for number in (1, 5):
        make(number)
        counts.append([len(queries_of(admin_client, list_url(model))) for model in (Job, Queue)])

    assert counts[0] == counts[1]


def test_no_page_counts_all_of_many_jobs(admin_client: Client, many_jobs: list[Job]) -> None:
    jobs, queue = list_url(Job), many_jobs[0].queue
    pages: list[tuple[str, dict[str, Any]]] = [
        (jobs, {}),
        (jobs, {"p": COUNT_LIMIT // 50}),
        *((jobs, {"state": state}) for state in ("due", "waiting", "running", "error", "final")),
        (jobs, {"outcome": "failed"}),
        (jobs, {"outcome": "failed", "ended": "hour", "queue": queue.pk}),
        (jobs, {"queue": queue.pk, "type": many_jobs[0].job_type_id}),
        (jobs, {"q": "order-7"}),
        (page_url(many_jobs[0]), {}),
        (page_url(many_jobs[-1]), {}),
        (list_url(Queue), {}),
        (page_url(queue), {}),
    ]

    for url, query in pages:
        statements = queries_of(admin_client, url, **query)

        assert len(statements) <= MAX_QUERIES, (url, query)
        assert [s for s in statements if counts_all_jobs(s)] == []
        assert [s for s in statements if "DISTINCT" in s] == []


def test_the_jobs_of_a_live_state_are_not_looked_for_among_the_final_ones(
    admin_client: Client, many_jobs: list[Job]
) -> None:
    asked: list[dict[str, Any]] = [{}]
    if connection.vendor == "postgresql":  # SQLite sorts the waiting jobs of a queue
        asked.append({"queue": many_jobs[0].queue_id})

    for state in ("due", "waiting", "initial", "running", "awaiting", "error"):
        for query in asked:
            with watched_plans() as plans:
                html(admin_client, list_url(Job), state=state, **query)
            listed = [p for p in plans if "error_head" in p.sql and "COUNT(" not in p.sql]
            assert_good(listed)


def test_what_ended_lately_is_not_looked_for_among_all_that_has_ended(
    admin_client: Client, many_jobs: list[Job]
) -> None:
    """By a type alone, too, which is not in the index of ends."""
    kind = many_jobs[0].job_type
    with travel(days=1):
        job = JobFactory.create(job_type=kind, state="final")

        for query in ({"queue": kind.queue_id}, {"type": kind.pk}):
            with watched_plans() as plans:
                page = html(admin_client, list_url(Job), ended="hour", **query)

            assert page_url(job) in page
            assert_good([plan for plan in plans if "update_time" in plan.sql])


def test_a_search_looks_only_into_indexes(admin_client: Client, many_jobs: list[Job]) -> None:
    for term in ("order-7", f"order-{JOBS - 1}", "nobody's", "42"):
        statements = about_jobs(queries_of(admin_client, list_url(Job), q=term))

        assert statements
        assert [s for s in statements if SCAN.search(plan_of(s))] == []


def test_the_list_says_that_there_are_more_jobs_than_it_pages_through(
    admin_client: Client, many_jobs: list[Job]
) -> None:
    assert f"More than {COUNT_LIMIT} jobs match" in html(admin_client, list_url(Job))
    assert "More than" not in html(admin_client, list_url(Job), q="order-7")
