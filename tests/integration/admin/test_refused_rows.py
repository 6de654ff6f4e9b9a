"""What an operator sees of rows that the database refuses, by a trigger of the project's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.test import Client

import hipq_django as hipq
from hipq_django.api import batches
from hipq_django.models import Job
from tests.admin_pages import history, log_in, press
from tests.concurrency.conftest import HOW, Refuse

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def refuse() -> Iterator[Refuse]:
    refuse = Refuse(HOW[0])
    yield refuse
    refuse.end()


def test_the_history_says_who_cancelled_a_batch_also_where_that_was_interrupted(
    client: Client, refuse: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "PAGE", 1)
    log_in(client, "view_batch", "cancel_batch")
    with hipq.batch() as batch:
        jobs = batch.enqueue_many([hipq.NewJob("echo")] * 3)
    refuse(f"OLD.id = {jobs[-1].pk}")
    client.raise_request_exception = False

    press(client, "cancel", batch)

    assert [*Job.objects.live()] == jobs[-1:]
    assert history(batch) == ["Began to cancel."]
