"""What an operator sees of rows that the database refuses, by a trigger of the project's."""

from __future__ import annotations

import pytest
from django.test import Client

import hipq_django as hipq
from hipq_django.api import batches
from hipq_django.models import Job
from tests.admin_pages import act, history, log_in, messages_of, page_url, press
from tests.concurrency.conftest import Refuse, refuse
from tests.factories import QueueFactory
from tests.running import run_due_jobs

__all__ = ["refuse"]

pytestmark = [pytest.mark.conformance, pytest.mark.django_db(transaction=True)]


def test_the_history_says_who_cancelled_a_batch_also_where_that_was_interrupted(
    client: Client, refuse: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "PAGE_SIZE", 1)
    log_in(client, "view_batch", "cancel_batch")
    with hipq.batch() as batch:
        jobs = batch.enqueue_many([hipq.NewJob("echo")] * 3)
    refuse(f"OLD.id = {jobs[-1].pk}")
    client.raise_request_exception = False

    press(client, "cancel", batch)

    assert [*Job.objects.live()] == jobs[-1:]
    assert history(batch) == ["Began to cancel."]


@pytest.fixture
def failed() -> list[Job]:
    """Three jobs that have failed."""
    jobs = hipq.enqueue_many([hipq.NewJob("boom")] * 3)
    run_due_jobs()
    return jobs


SAID = "The database refused it: "


@pytest.mark.parametrize("across", ["0", "1"])
def test_a_copy_that_the_database_refuses_stops_no_other(
    client: Client, refuse: Refuse, failed: list[Job], across: str
) -> None:
    log_in(client, "view_job", "requeue_job")
    first, *others = failed
    refuse(f"NEW.origin_id = {first.pk}", when="INSERT")

    said = messages_of(act(client, "requeue", *failed, select_across=across))

    assert said[0] == "Requeued: 2 jobs."
    assert said[1].startswith(f"job {first.pk}: {SAID}")
    assert [*Job.objects.filter(origin__in=failed).values_list("origin", flat=True)] == [
        job.pk for job in others
    ]
    assert history(first) == []


def test_a_button_says_that_the_database_refused_it(
    client: Client, refuse: Refuse, failed: list[Job]
) -> None:
    log_in(client, "view_job", "requeue_job")
    refuse(f"NEW.origin_id = {failed[0].pk}", when="INSERT")

    [said] = messages_of(press(client, "requeue", failed[0]))

    assert said.startswith(SAID)
    assert history(failed[0]) == []


# The history itself


HISTORY = "django_admin_log"


def test_no_queue_is_paused_without_a_line_in_the_history(client: Client, refuse: Refuse) -> None:
    queue = QueueFactory.create()
    log_in(client, "view_queue", "change_queue")
    refuse("NEW.change_message = 'Paused.'", HISTORY, "INSERT")
    client.raise_request_exception = False

    act(client, "pause", queue)
    queue.refresh_from_db()
    assert not queue.paused

    refuse.end()
    act(client, "pause", queue)
    queue.refresh_from_db()
    assert queue.paused
    assert history(queue) == ["Paused."]


def test_nothing_is_backfilled_without_a_line_in_the_history(
    client: Client, refuse: Refuse
) -> None:
    row = hipq.schedule("hourly", hipq.NewJob("echo"), "0 * * * *")
    log_in(client, "view_schedule", "run_schedule")
    refuse("NEW.change_message LIKE 'Backfilled%'", HISTORY, "INSERT")
    client.raise_request_exception = False
    sent = {"start": "2026-03-01T00:30", "end": "2026-03-01T02:30", "confirmed": "1"}

    client.post(page_url(row, "backfill"), sent)
    assert not Job.objects.exists()
    assert not row.runs.exists()

    refuse.end()
    client.post(page_url(row, "backfill"), sent)
    assert Job.objects.count() == 2
    assert len(history(row)) == 1
