"""Batches in the admin: how far each is, its jobs, and cancelling one."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

import hipq_django as hipq
from hipq_django.models import Batch, Job
from hipq_django.monitoring import counts
from tests.admin_pages import act, history, html, list_url, log_in, messages_of, page_url, press
from tests.running import run_due_jobs

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]


@pytest.fixture
def batch() -> Batch:
    with hipq.batch("import 7", then=hipq.NewJob("echo")) as batch:
        batch.enqueue_many([hipq.NewJob("echo"), hipq.NewJob("boom"), hipq.NewJob("ask")])
    return batch


def test_the_list_of_batches_counts_up_to_a_bound(
    client: Client, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the page of a batch counts all of its jobs."""
    log_in(client, "view_batch")
    run_due_jobs()
    monkeypatch.setattr(counts, "COUNT_LIMIT", 3)
    with hipq.batch("large") as large:
        large.enqueue_many([hipq.NewJob("echo")] * 5)
    run_due_jobs()

    listed = html(client, list_url(Batch))

    assert "import 7" in listed
    assert '<progress value="2" max="3">' in listed
    assert listed.count("<progress") == 1
    assert '<td class="field-progress">3+ / 3+</td>' in listed
    assert '<td class="field-succeeded">3+</td>' in listed
    assert '<progress value="5" max="5">' in html(client, page_url(large))


def test_the_list_of_batches_asks_the_same_number_of_queries(
    client: Client, django_assert_max_num_queries: Any
) -> None:
    log_in(client, "view_batch")
    for _ in range(20):
        with hipq.batch() as made:
            made.enqueue(hipq.NewJob("echo"))

    with django_assert_max_num_queries(8):
        html(client, list_url(Batch))


def test_the_page_of_a_batch_lists_its_jobs(client: Client, batch: Batch) -> None:
    log_in(client, "view_batch", "view_job")
    run_due_jobs()
    other = hipq.enqueue("echo")
    page = html(client, page_url(batch))
    link = f"{list_url(Job)}?batch={batch.pk}"

    assert '<progress value="2" max="3">' in page
    assert f'href="{link}">All 3 jobs of this batch' in page
    for job in batch.jobs.all():
        assert page_url(job) in page
        assert page_url(job) in html(client, link)
    assert page_url(other) not in html(client, link)
    assert page_url(batch.jobs.order_by("pk")[0]) in html(client, f"{link}&outcome=succeeded")


@pytest.mark.parametrize("text", ["x", "9" * 40, "-1"])
def test_a_batch_that_cannot_be_has_no_jobs(client: Client, batch: Batch, text: str) -> None:
    log_in(client, "view_job")

    assert "0 jobs" in html(client, f"{list_url(Job)}?batch={text}")


def test_who_may_not_view_jobs_sees_no_jobs_of_a_batch(client: Client, batch: Batch) -> None:
    log_in(client, "view_batch")

    page = html(client, page_url(batch))

    assert "jobs of this batch" not in page
    assert "echo" not in page


def test_a_batch_is_cancelled_once(client: Client, batch: Batch) -> None:
    log_in(client, "view_batch", "cancel_batch")

    press(client, "cancel", batch)

    assert not Job.objects.live().exists()
    assert history(batch) == ["Began to cancel.", "Cancelled 4 jobs."]
    assert page_url(batch, "cancel") not in html(client, page_url(batch))
    said = messages_of(act(client, "cancel", batch))
    assert said == [f"batch {batch.pk} (import 7) was left as it is: none of its jobs is live."]


def test_a_batch_of_which_only_then_is_left_is_cancelled(client: Client) -> None:
    log_in(client, "view_batch", "cancel_batch")
    with hipq.batch(then=hipq.NewJob("ask")) as batch:
        batch.enqueue(hipq.NewJob("echo"))
    run_due_jobs()
    then = Job.objects.live().get()

    press(client, "cancel", batch)

    then.refresh_from_db()
    assert then.outcome == "cancelled"
