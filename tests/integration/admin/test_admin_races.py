"""An operator and a worker at the same moment: the row lock decides who was first.

Two connections are needed that wait for each other's row, which SQLite's one write lock
does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier
from typing import Any

import pytest
from django.db import connections, transaction
from django.test import Client

import hipq_django as hipq
from hipq_django import transitions
from hipq_django.database import clock
from hipq_django.database.locks import locked
from hipq_django.models import Job, Queue
from tests.admin_pages import form_values, history, messages_of, save
from tests.concurrency.sessions import wait_until_blocked
from tests.factories import QueueFactory, WorkerFactory
from tests.hand_worker import HandWorker

pytestmark = [pytest.mark.postgres, pytest.mark.django_db(transaction=True)]

ROUNDS = 8


def in_thread(function: Callable[[], Any]) -> Future[Any]:
    """Run the function on a connection of its own."""

    def run() -> Any:
        try:
            return function()
        finally:
            connections.close_all()

    pool = ThreadPoolExecutor(max_workers=1)
    try:
        return pool.submit(run)
    finally:
        pool.shutdown(wait=False)


@contextmanager
def claim_in_progress(job: Job) -> Iterator[None]:
    """A worker has claimed the job and commits when somebody else waits for the row."""
    worker, claimed = WorkerFactory.create(), Barrier(2, timeout=20)

    def claim() -> None:
        with transaction.atomic():
            row = locked(Job.objects.using("default").filter(pk=job.pk)).get()
            transitions.claim([row], worker, clock.now("default"), room=1)
            claimed.wait()
            wait_until_blocked()

    claiming = in_thread(claim)
    claimed.wait()
    yield
    claiming.result(timeout=20)


@pytest.mark.conformance
def test_an_edit_waits_for_a_claim_and_is_then_refused(admin_client: Client) -> None:
    job = hipq.enqueue("ask")
    opened = form_values(admin_client, job)

    with claim_in_progress(job):
        response = save(admin_client, job, opened, priority="1")

    assert "its state is running by now, attempt 1" in messages_of(response)[0]
    assert Job.objects.get(pk=job.pk).priority == 100
    assert history(job) == []


@pytest.mark.conformance
def test_an_edit_is_either_in_the_claim_or_refused(admin_client: Client) -> None:
    worker = HandWorker()
    for _ in range(ROUNDS):
        job = hipq.enqueue("ask")
        opened, start = form_values(admin_client, job), Barrier(2, timeout=20)

        def claim(start: Barrier = start) -> list[Job]:
            start.wait()
            return worker.run_pass()

        claiming = in_thread(claim)
        start.wait()
        said = messages_of(save(admin_client, job, opened, priority="1"))
        claimed = claiming.result(timeout=20) or worker.run_pass()

        was_edited = "was changed successfully" in said[0]
        assert [(row.pk, row.priority) for row in claimed] == [(job.pk, 1 if was_edited else 100)]
        assert Job.objects.get(pk=job.pk).priority == claimed[0].priority
        assert len(history(job)) == was_edited


@pytest.mark.conformance
def test_an_edit_waits_for_another_one_of_the_same_value_and_is_then_refused(
    admin_client: Client,
) -> None:
    queue = QueueFactory.create(throttle_limit=10)
    opened, edited = form_values(admin_client, queue), Barrier(2, timeout=20)

    def edit() -> None:
        with transaction.atomic():
            Queue.objects.filter(pk=queue.pk).update(throttle_limit=20)
            edited.wait()
            wait_until_blocked()

    editing = in_thread(edit)
    edited.wait()
    page = save(admin_client, queue, opened, throttle_limit="5").content.decode()
    editing.result(timeout=20)

    assert "Somebody else has changed this since you opened the page" in page
    assert Queue.objects.get(pk=queue.pk).throttle_limit == 20
    assert history(queue) == []
