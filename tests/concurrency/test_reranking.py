"""The order of a queue is changed while somebody has rows of its jobs locked."""

from __future__ import annotations

import pytest

import hipq_django as hipq
from hipq_django.conf.instances import get_instance
from hipq_django.maintenance import reranking
from hipq_django.models import Job, Queue
from tests.concurrency.sessions import Session
from tests.hand_worker import HandWorker

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]


def lock(*jobs: Job) -> None:
    """Lock rows, as a view does that is slow to end."""
    list(Job.objects.select_for_update().filter(pk__in=[job.pk for job in jobs]))


def change_order(order: str = "priority", limit: int = 0) -> Queue:
    Queue.objects.update(order=order, throttle_limit=limit)
    return Queue.objects.get()


def rank_all() -> None:
    while reranking.continue_ranking(get_instance()):
        pass


def is_ranked(job: Job, queue: Queue) -> bool:
    job.refresh_from_db()
    return job.rank == queue.ordering.rank(job.scheduled_run_time, job.priority)


def test_ranking_waits_for_no_row_and_none_waits_forever(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reranking, "PAGE_SIZE", 2)
    monkeypatch.setattr(reranking, "SLICE_SECONDS", 0.0)
    jobs = [hipq.enqueue("echo", n) for n in range(5)]
    change_order("priority")
    rank_all()
    queue = change_order("time")
    session.begin()
    session(lambda: lock(jobs[1], jobs[3]))

    rank_all()
    while_locked = [is_ranked(job, queue) for job in jobs]
    session.commit()
    found = reranking.find_strays(get_instance())
    for _ in range(3):
        reranking.continue_ranking(get_instance())

    assert while_locked == [True, False, True, False, True]
    assert found == 1
    assert all(is_ranked(job, queue) for job in jobs)


def test_a_limited_queue_goes_on_while_a_job_to_be_ranked_is_locked(session: Session) -> None:
    kept, free = hipq.enqueue("echo"), hipq.enqueue("echo")
    change_order(limit=5)
    session.begin()
    session(lambda: lock(kept))

    claimed = HandWorker().run_pass()

    assert claimed == [free]
