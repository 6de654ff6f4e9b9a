"""The endpoint that only enqueues."""

from typing import Any

import pytest
from django.test import Client

from example_project.events.models import Event
from hipq_django.models import Job
from hipq_django.testing import assert_enqueued
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db

EVENT = {"id": "e-1", "account": "acme", "name": "page viewed"}


def send(client: Client, content: Any) -> int:
    return client.post("/events/", content, "application/json").status_code


def test_an_event_is_confirmed_at_once_and_stored_later(client: Client) -> None:
    assert send(client, EVENT) == 202
    assert_enqueued("store_event", job_key="e-1")
    assert not Event.objects.exists()

    run_due_jobs()

    event = Event.objects.get()
    assert (event.event_id, event.account, event.name) == ("e-1", "acme", "page viewed")
    assert event.create_time == Job.objects.get().create_time


def test_an_event_that_is_sent_again_is_stored_once(client: Client) -> None:
    send(client, EVENT)
    send(client, EVENT)  # its job is still there
    run_due_jobs()
    send(client, EVENT)  # its job is done
    run_due_jobs()

    assert Event.objects.count() == 1


@pytest.mark.parametrize(
    "content",
    [
        "no JSON",
        '{"id": "e-1"}',
        {**EVENT, "id": ""},
        {**EVENT, "name": "x" * 101},
    ],
    ids=range(4),
)
def test_what_is_no_event_is_refused(client: Client, content: Any) -> None:
    assert send(client, content) == 400
    assert not Job.objects.exists()
