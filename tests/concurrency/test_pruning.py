"""Final jobs that are deleted while somebody still speaks of them.

What must happen between two statements of another connection runs on PostgreSQL alone: SQLite
has one writer at a time.
"""

from __future__ import annotations

from functools import partial

import pytest

import hipq_django as hipq
from hipq_django.conf.instances import get_instance
from hipq_django.maintenance import retention
from hipq_django.models import Answer, Attempt, Batch, Job
from tests.concurrency.sessions import Session, errors_of, run_together
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db(transaction=True)

THREADS = 4


def prune() -> dict[str, int]:
    return retention.prune(get_instance(), days=0)


def ended(key: str = "k") -> Job:
    job = hipq.enqueue("boom", job_key=key)
    run_due_jobs()
    return job


def test_of_several_that_prune_each_job_is_deleted_by_one() -> None:
    hipq.enqueue_many([hipq.NewJob("boom") for _ in range(50)])
    run_due_jobs()

    counts = run_together(*[prune] * THREADS)

    assert errors_of(counts) == []
    assert sum(count["default"] for count in counts if isinstance(count, dict)) == 50
    assert (Job.objects.count(), Attempt.objects.count()) == (0, 0)


def test_an_answer_while_its_final_job_is_pruned_is_no_error_for_anybody(rounds: int) -> None:
    for number in range(rounds):
        key = ended(f"key-{number}").job_key

        answer, counts = run_together(partial(hipq.complete, "boom", key, "late"), prune)

        assert errors_of([answer, counts]) == []


@pytest.mark.postgres
def test_a_transaction_with_a_late_answer_commits_whatever_is_pruned_meanwhile(
    session: Session,
) -> None:
    """The job is left to the next pruning."""
    job = ended()
    session.begin()
    session(lambda: hipq.complete("boom", "k", "late"))

    prune()
    session.commit()

    assert Answer.objects.get().job == job
    prune()
    assert (Job.objects.count(), Answer.objects.count()) == (0, 0)


def ended_in_batch() -> Job:
    with hipq.batch("orders") as batch:
        job = batch.enqueue(hipq.NewJob("boom"))
    run_due_jobs()
    return job


@pytest.mark.postgres
def test_a_batch_in_which_a_job_is_just_requeued_is_not_pruned(session: Session) -> None:
    job = ended_in_batch()
    session.begin()
    session(lambda: hipq.requeue(job, dependents=True))
    Job.objects.filter(pk=job.pk).delete()

    counts = prune()
    session.commit()

    assert counts["batches"] == 0
    assert Job.objects.get().batch == Batch.objects.get()
