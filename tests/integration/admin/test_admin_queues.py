"""Queues in the admin: what stands in them, and editing them while jobs run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypeVar

import pytest
from django.test import Client

import hipq_django as hipq
from hipq_django.conf.instances import get_instance
from hipq_django.database import clock
from hipq_django.maintenance import reranking
from hipq_django.models import Job, JobType, Queue, Schedule
from hipq_django.monitoring import counts
from tests.admin_pages import (
    html,
    list_url,
    log_in,
    messages_of,
    page_url,
    press,
    save,
)
from tests.factories import JobFactory, JobTypeFactory, QueueFactory, WorkerFactory
from tests.hand_worker import HandWorker

pytestmark = pytest.mark.django_db

RANKING_EDITS = [{"order": "ageing"}, {"granularity_seconds": "3600"}]


@pytest.fixture
def bank() -> Queue:
    queue: Queue = QueueFactory.create(name="bank", throttle_limit=10)
    return queue


def job_in(queue: Queue, state: str = "initial", **values: Any) -> Job:
    job: Job = JobFactory.create(job_type=_type_of(queue), state=state, **values)
    return job


def _type_of(queue: Queue) -> Any:
    return queue.job_types.first() or JobTypeFactory.create(queue=queue)


def row_of(page: str, queue: Queue) -> str:
    """The table row of a queue in the list."""
    start = page.index(f'href="{page_url(queue)}"')
    return page[start : page.index("</tr>", start)]


def listed(client: Client, queue: Queue) -> str:
    return row_of(html(client, list_url(Queue)), queue)


# What stands in it


@pytest.mark.conformance
def test_the_list_counts_what_stands_in_a_queue(admin_client: Client, bank: Queue) -> None:
    now = clock.now("default")
    job_in(QueueFactory.create())
    for hours in (3, 1):
        job_in(bank, scheduled_run_time=now - timedelta(hours=hours))
    job_in(bank, scheduled_run_time=now + timedelta(hours=1))
    for factor in (2, "0.5"):
        job_in(bank, "running", throttle_factor=factor)
    job_in(bank, "error")
    job_in(bank, "final")

    row = listed(admin_client, bank)

    jobs = f"{list_url(Job)}?queue={bank.pk}&amp;state="
    for state, number in (("due", 2), ("waiting", 3), ("running", 2), ("error", 1)):
        assert f'<a href="{jobs}{state}">{number}</a>' in row
    assert ">3 h" in row
    assert ">2.5 of 10<" in row


@pytest.mark.conformance
def test_no_queue_is_counted_beyond_a_bound(
    admin_client: Client, bank: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counts, "COUNT_LIMIT", 2)
    for _ in range(5):
        job_in(bank)

    assert listed(admin_client, bank).count(">2+</a>") == 2


def test_the_list_says_what_holds_a_queue(admin_client: Client, bank: Queue) -> None:
    WorkerFactory.create(queues=["bank"])
    job_in(bank, "running", throttle_factor=2)
    job_in(bank, throttle_factor=0)

    held: list[tuple[dict[str, Any], str]] = [
        ({}, "ok"),
        ({"throttle_limit": 2}, "limit reached"),
        ({"throttler_problem": "throttler by_region raised KeyError"}, "by_region raised KeyError"),
        ({"paused": True}, "paused"),
    ]
    for values, text in held:
        Queue.objects.filter(pk=bank.pk).update(**values)
        assert text in listed(admin_client, bank)
        assert text in html(admin_client, page_url(bank))


def test_the_list_says_that_no_worker_serves_a_queue(admin_client: Client, bank: Queue) -> None:
    WorkerFactory.create(queues=["mail"])
    WorkerFactory.create(instance="other")
    WorkerFactory.create(silent=True)
    for state in ("stopped", "stopping"):
        WorkerFactory.create(state=state)

    assert "no worker" in listed(admin_client, bank)
    assert "no worker" in html(admin_client, page_url(bank))


def test_rows_of_an_instance_that_the_setting_lost_can_still_be_seen(
    admin_client: Client,
) -> None:
    queue = QueueFactory.create(instance="gone", name="bank")
    job = job_in(queue)

    assert "HIPQ has no instance &#x27;gone&#x27;" in html(admin_client, page_url(queue))
    assert "gone.bank" in listed(admin_client, queue)
    assert "gone.bank" in html(admin_client, page_url(job))


def test_a_schedule_of_an_instance_that_the_setting_lost_can_still_be_seen(
    client: Client,
) -> None:
    log_in(client, *(f"{verb}_schedule" for verb in ("view", "change", "delete", "run")))
    row = lost(hipq.schedule("nightly", hipq.NewJob("echo"), "0 2 * * *"))

    html(client, page_url(row))

    [said] = messages_of(press(client, "run_now", row))
    assert said.startswith("HIPQ has no instance 'gone'")
    assert "No code declares this job type." in save(client, row, cron="1 2 * * *").content.decode()


Row = TypeVar("Row", Schedule, JobType)


def lost(row: Row) -> Row:
    """Put a row into an instance that the setting does not have any more."""
    type(row)._default_manager.filter(pk=row.pk).update(instance="gone")
    row.refresh_from_db()
    return row


# Editing


@pytest.mark.conformance
def test_an_edit_holds_for_the_next_claim(admin_client: Client) -> None:
    jobs = [hipq.enqueue("ask") for _ in range(3)]
    save(admin_client, jobs[0].queue, throttle_limit="2")

    assert HandWorker().run_pass() == jobs[:2]


@pytest.mark.conformance
@pytest.mark.parametrize("edit", RANKING_EDITS)
def test_after_an_edit_of_the_order_the_workers_rank_the_waiting_jobs_anew(
    admin_client: Client, bank: Queue, edit: dict[str, str]
) -> None:
    jobs = [job_in(bank, state, priority=p) for state in ("initial", "retry") for p in (9, 1)]
    final = job_in(bank, "final")

    said = messages_of(save(admin_client, bank, **edit))
    bank.refresh_from_db()
    was_ranked, page = bank.is_ranked, listed(admin_client, bank)
    reranking.continue_ranking(get_instance())

    assert not was_ranked
    assert "changing order" in page
    assert "The workers are bringing the waiting jobs of queue bank into the new order." in said
    assert [Job.objects.get(pk=job.pk).rank for job in jobs] == [
        bank.ordering.rank(job.scheduled_run_time, job.priority) for job in jobs
    ]
    assert Job.objects.get(pk=final.pk).rank == final.rank
