"""The order of a queue is changed while somebody has rows of its jobs locked."""

from __future__ import annotations

from datetime import timedelta

import pytest
import time_machine

import hipq_django as hipq
from hipq_django.conf.instances import get_instance
from hipq_django.database import clock
from hipq_django.maintenance import reranking
from hipq_django.models import Job, Queue
from tests.concurrency.sessions import Session
from tests.hand_worker import HandWorker

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgres]


def lock(*jobs: Job) -> None:
    """Lock rows, as a view does that is slow to end."""
    list(Job.objects.select_for_update().filter(pk__in=[job.pk for job in jobs]))


def change_order(limit: int = 0) -> Queue:
    Queue.objects.update(order="priority", throttle_limit=limit)
    return Queue.objects.get()


def is_ranked(job: Job, queue: Queue) -> bool:
    job.refresh_from_db()
    return job.rank == queue.ordering.rank(job.scheduled_run_time, job.priority)


def test_ranking_waits_for_no_row_and_passes_none_over(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reranking, "PAGE_SIZE", 2)
    monkeypatch.setattr(reranking, "COME_BACK", timedelta(seconds=-1))
    monkeypatch.setattr(reranking, "SLICE_SECONDS", 0.0)
    jobs = [hipq.enqueue("echo", n) for n in range(5)]
    queue = change_order()
    session.begin()
    session(lambda: lock(jobs[1], jobs[3]))

    for _ in range(6):
        reranking.continue_ranking(get_instance())
    while_locked = [is_ranked(job, queue) for job in jobs]
    session.commit()
    for _ in range(6):
        reranking.continue_ranking(get_instance())

    assert while_locked == [True, False, True, False, True]
    assert all(is_ranked(job, queue) for job in jobs)


def test_the_last_time_the_jobs_are_looked_through_passes_none_over_either(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "_offsets", {})
    stray = hipq.enqueue("echo")
    queue = change_order()
    rank = stray.rank
    with time_machine.travel(clock.now("default"), tick=False) as now:
        reranking.continue_ranking(get_instance())
        Job.objects.update(rank=rank)
        session.begin()
        session(lambda: lock(stray))
        now.shift(61)
        reranking.continue_ranking(get_instance())
        queue.refresh_from_db()
        while_locked = queue.is_ranked
        session.commit()
        now.shift(2)
        reranking.continue_ranking(get_instance())

    queue.refresh_from_db()
    assert (while_locked, queue.is_ranked, is_ranked(stray, queue)) == (False, True, True)


def test_a_limited_queue_goes_on_while_a_job_to_be_ranked_is_locked(session: Session) -> None:
    kept, free = hipq.enqueue("echo"), hipq.enqueue("echo")
    change_order(limit=5)
    session.begin()
    session(lambda: lock(kept))

    claimed = HandWorker().run_pass()

    assert claimed == [free]
