"""The endpoint that only enqueues."""

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

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


def test_the_sender_waits_for_one_insert(client: Client) -> None:
    send(client, EVENT)

    with CaptureQueriesContext(connection) as queries:
        send(client, EVENT | {"id": "e-2"})

    # On PostgreSQL the INSERT stands in a function.
    starts = [query["sql"].split("(")[0] for query in queries]
    inserts = ("INSERT INTO hipq_job ", "CALL hipq_enqueue_")
    reads = ("SELECT ", "SAVEPOINT ", "RELEASE ")
    writes = [s for s in starts if s.startswith(inserts) or not s.startswith(reads)]
    assert len(writes) == 1
    assert writes[0].startswith(inserts)


def test_an_event_that_is_sent_again_is_stored_once(client: Client) -> None:
    send(client, EVENT)
    send(client, EVENT)  # its job is still there
    run_due_jobs()
    send(client, EVENT)  # its job is done
    run_due_jobs()

    assert Event.objects.count() == 1


def test_an_event_that_is_called_none_is_refused(client: Client) -> None:
    """It is the word that hipq_django stores for "no key"."""
    assert send(client, EVENT | {"id": "NONE"}) == 400
    assert not Job.objects.exists()


@pytest.mark.parametrize(
    "content",
    [
        "no JSON",
        "[]",
        "null",
        '{"id": "e-1"}',
        {**EVENT, "id": ""},
        {**EVENT, "id": 5},
        {**EVENT, "id": "two\nlines"},
        {**EVENT, "name": "x" * 101},
        "[" * 50_000,
    ],
    ids=range(9),
)
def test_what_is_no_event_is_refused(client: Client, content: Any) -> None:
    assert send(client, content) == 400
    assert not Job.objects.exists()


def test_an_event_cannot_be_read(client: Client) -> None:
    assert client.get("/events/").status_code == 405
