"""Operators and callers who change what a worker is just moving."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from itertools import count
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

import hipq_django as hipq
from hipq_django import transitions
from hipq_django.admin.row_actions import RowActions
from hipq_django.database import clock
from hipq_django.database.locks import locked
from hipq_django.database.transactions import write_transaction
from hipq_django.domain.states import WAITING
from hipq_django.models import Job, Queue
from tests.admin_pages import act, history, messages_of, press
from tests.concurrency.sessions import Session, errors_of, run_together
from tests.factories import JobFactory
from tests.hand_worker import HandWorker
from tests.integration.conftest import ConfigureQueue
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db(transaction=True)

LIMIT = 10


def load() -> Decimal:
    return sum((job.throttle_factor for job in Job.objects.running()), Decimal(0))


def operate(verb: Callable[[Job], Job], job: Job) -> Any:
    """Read the job, as an operator's page does, and do something to it."""
    return verb(Job.objects.get(pk=job.pk))


def weigh(job: Job, factor: int) -> bool:
    """Give a waiting job another factor, as the admin does; return whether it was waiting."""
    with write_transaction("default"):
        row = locked(Job.objects.using("default").filter(pk=job.pk)).get()
        if row.state not in WAITING:
            return False
        transitions.edit(row, {"throttle_factor": Decimal(factor)}, clock.now("default"))
    return True


def test_a_job_that_is_cancelled_while_its_result_is_saved_has_one_end(rounds: int) -> None:
    for _ in range(rounds):
        job = hipq.enqueue("echo", "done")
        worker = HandWorker()
        worker.run_pass()
        worker.execute()

        saved, cancelled = run_together(worker.save, partial(operate, hipq.cancel, job))

        job.refresh_from_db()
        assert saved is None
        if job.outcome == "cancelled":
            assert job.result is None
        else:
            assert (job.outcome, job.result) == ("succeeded", "done")
            assert isinstance(cancelled, hipq.InvalidJobError)


def test_a_job_that_is_cancelled_while_it_is_claimed_ends_cancelled(rounds: int) -> None:
    for _ in range(rounds):
        job = hipq.enqueue("echo", "done")
        worker = HandWorker()

        results = run_together(worker.run_pass, partial(operate, hipq.cancel, job))
        worker.execute()
        worker.save()

        job.refresh_from_db()
        assert errors_of(results) == []
        assert (job.outcome, job.result) == ("cancelled", None)


def test_a_factor_that_is_raised_while_the_queue_is_claimed_never_lifts_the_load_over_the_limit(
    configure_queue: ConfigureQueue, rounds: int
) -> None:
    configure_queue(THROTTLE_LIMIT=LIMIT)
    for _ in range(rounds):
        jobs = hipq.enqueue_many([hipq.NewJob("ask") for _ in range(2 * LIMIT)])

        results = run_together(
            HandWorker().work,
            HandWorker().work,
            *[partial(weigh, job, 4) for job in jobs[3:9:2]],
        )

        assert errors_of(results) == []
        assert 0 < load() <= LIMIT
        Job.objects.live().delete()


def test_a_limit_that_is_raised_while_the_queue_is_claimed_holds(
    configure_queue: ConfigureQueue, rounds: int
) -> None:
    queue = configure_queue(THROTTLE_LIMIT=LIMIT // 2)
    for _ in range(rounds):
        Queue.objects.filter(pk=queue.pk).update(throttle_limit=LIMIT // 2)
        hipq.enqueue_many([hipq.NewJob("ask") for _ in range(3 * LIMIT)])

        results = run_together(
            *[HandWorker().work] * 2,
            lambda: Queue.objects.filter(pk=queue.pk).update(throttle_limit=LIMIT),
        )
        HandWorker().work()

        assert errors_of(results) == []
        assert load() == LIMIT
        Job.objects.live().delete()


def test_a_job_that_is_run_now_while_it_is_claimed_runs_once(rounds: int) -> None:
    for _ in range(rounds):
        job = hipq.enqueue("echo", "done")
        worker = HandWorker()

        run_together(worker.work, partial(operate, hipq.run_now, job))
        run_due_jobs()

        job.refresh_from_db()
        assert (job.outcome, job.attempt) == ("succeeded", 1)


@pytest.mark.postgres
def test_a_pause_that_is_not_committed_yet_holds_no_worker_up(
    session: Session, configure_queue: ConfigureQueue
) -> None:
    """The worker leaves the queue to whoever has its row, and comes back."""
    queue = configure_queue(THROTTLE_LIMIT=LIMIT)
    hipq.enqueue("ask")
    session.begin()
    session(lambda: Queue.objects.filter(pk=queue.pk).update(paused=True))
    worker = HandWorker()

    during = worker.run_pass()
    session.commit()
    after = worker.run_pass()

    assert (during, after) == ([], [])
    assert Job.objects.get().attempt == 0


# In the admin


def test_of_operators_who_requeue_the_same_jobs_each_is_requeued_by_one(
    admin_client: Client,
) -> None:
    jobs = [JobFactory.create(state="final") for _ in range(5)]
    clients = [Client() for _ in range(4)]
    for client in clients:
        client.force_login(User.objects.get())

    results = run_together(*[partial(act, client, "requeue", *jobs) for client in clients])

    assert errors_of(results) == []
    assert [job.successors.count() for job in jobs] == [1] * len(jobs)


@pytest.mark.parametrize("do", [press, act], ids=["button", "list"])
def test_of_two_operators_who_requeue_a_job_in_the_same_instant_the_second_is_told(
    do: Callable[..., Any], admin_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = JobFactory.create(state="final")
    other, looked_at, questions = Session(), count(), RowActions._question

    def look(self: RowActions, *args: Any) -> Any:
        asked = questions(self, *args)
        if next(looked_at) == 0:
            other(partial(hipq.requeue, job))
        return asked

    monkeypatch.setattr(RowActions, "_question", look)
    response = do(admin_client, "requeue", job)
    other.close()

    fresh = Job.objects.get(origin=job)
    said = f"job {job.pk} was left as it is. Your page did not say this yet: It was requeued"
    assert said in messages_of(response)[0]
    assert f"the last time as job {fresh.pk}." in messages_of(response)[0]
    assert history(job) == []
