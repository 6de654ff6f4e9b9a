"""Of several jobs that end at the same moment one lets go what waits for them, once."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextvars import copy_context
from functools import partial

import pytest
from django.db import connection

import hipq_django as hipq
from hipq_django.conf.instances import get_instance
from hipq_django.dependencies import needs, unholding
from hipq_django.dependencies.unholding import Sweep
from hipq_django.domain.dependencies import Verdict
from hipq_django.models import Job
from tests.concurrency.sessions import Session, errors_of, run_together
from tests.declaring import Declare
from tests.hand_worker import HandWorker

pytestmark = pytest.mark.django_db(transaction=True)

FINISHERS = 3


def complete(job: Job) -> None:
    hipq.complete(job, 1)


def cancel(job: Job) -> None:
    hipq.cancel(Job.objects.get(pk=job.pk))


def run_claims(worker: HandWorker) -> None:
    worker.execute()
    worker.save()


def test_three_finishers_unhold_each_dependent_once(rounds: int) -> None:
    for number in range(rounds):
        needed = [hipq.enqueue("ask", job_key=f"{number}-{k}") for k in range(FINISHERS)]
        follower = hipq.enqueue("echo", after=needed)
        HandWorker().work()

        results = run_together(*(lambda job=job: hipq.complete(job, 1) for job in needed))

        assert errors_of(results) == []
        row = Job.objects.get(pk=follower.pk)
        assert (row.hold_time, row.state) == (None, "initial"), f"round {number}"
        Job.objects.filter(pk=follower.pk).delete()


def test_a_job_that_is_cancelled_while_it_is_unheld_never_runs(rounds: int) -> None:
    for number in range(rounds):
        needed = hipq.enqueue("ask", job_key=f"needed-{number}")
        follower = hipq.enqueue("ask", after=[needed])
        HandWorker().work()

        results = run_together(partial(complete, needed), partial(cancel, follower))

        assert errors_of(results) == []
        assert HandWorker().work() == []
        row = Job.objects.get(pk=follower.pk)
        assert (row.outcome, row.attempt) == ("cancelled", 0), f"round {number}"


def test_what_follows_a_job_that_is_cancelled_while_it_ends_does_as_that_job_did(
    rounds: int,
) -> None:
    """The one of the two that comes first decides, for the job and for what follows it."""
    for number in range(rounds):
        needed = hipq.enqueue("ask", job_key=f"needed-{number}")
        follower = hipq.enqueue("echo", after=[needed])
        HandWorker().work()

        results = run_together(partial(complete, needed), partial(cancel, needed))

        assert all(isinstance(error, hipq.InvalidJobError) for error in errors_of(results)), results
        HandWorker().work()
        needed.refresh_from_db()
        follower.refresh_from_db()
        assert follower.outcome == needed.outcome, f"round {number}"


@pytest.mark.postgres
@pytest.mark.parametrize(("needed", "outcome"), [("boom", "cancelled"), ("echo", "NONE")])
def test_what_ends_between_the_check_of_an_enqueue_and_its_commit_is_not_missed(
    session: Session, needed: str, outcome: str
) -> None:
    """Whoever ends the job cannot see yet what follows it: the enqueuer looks after its commit."""
    before = hipq.enqueue(needed)
    session.begin()
    follower = session(lambda: hipq.enqueue("echo", after=[before]))

    HandWorker().work()
    assert Job.objects.get(pk=before.pk).is_final
    session.commit()

    assert not Job.objects.held().exists()
    assert Job.objects.get(pk=follower.pk).outcome == outcome


def test_then_waits_for_members_that_a_member_adds_while_the_others_end(
    declare: Declare, rounds: int
) -> None:
    split = declare.task("split", queue="other")(
        lambda job=hipq.JOB: job.batch.enqueue(hipq.NewJob("ask")).pk
    )
    for number in range(rounds // 2):
        with hipq.batch(then=hipq.NewJob("echo")) as batch:
            batch.enqueue(hipq.NewJob("ask", job_key=f"member-{number}"))
            batch.enqueue(split.new())
        HandWorker("default").work()  # the handler returns WAIT
        asking, then = Job.objects.running().get(), Job.objects.held().get()
        worker = HandWorker("other")
        [splitting] = worker.run_pass()

        results = run_together(partial(run_claims, worker), partial(complete, asking))

        assert errors_of(results) == []
        added = Job.objects.get(batch=batch, parent=splitting)
        assert Job.objects.get(pk=then.pk).hold_time is not None, f"round {number}"
        HandWorker().work()
        hipq.complete(Job.objects.get(pk=added.pk), 1)
        assert Job.objects.get(pk=then.pk).hold_time is None, f"round {number}"
        Job.objects.filter(pk=then.pk).delete()


def test_what_a_member_adds_to_a_batch_that_is_being_cancelled_is_cancelled_or_refused(
    declare: Declare, rounds: int
) -> None:
    split = declare.task("split", queue="other")(
        lambda job=hipq.JOB: job.batch.enqueue(hipq.NewJob("ask")).pk
    )
    for number in range(rounds // 2):
        with hipq.batch(then=hipq.NewJob("echo")) as batch:
            batch.enqueue(split.new())
        worker = HandWorker("other")
        worker.run_pass()

        results = run_together(partial(run_claims, worker), partial(hipq.cancel_batch, batch))

        assert errors_of(results) == []
        assert not Job.objects.live().filter(batch=batch).exists(), f"round {number}"
        assert not HandWorker().work(), f"round {number}"


def many_that_follow_one() -> Job:
    needed = hipq.enqueue("ask", job_key="k")
    for _ in range(5):
        hipq.enqueue("echo", after=[needed])
    return needed


def long_chain() -> Job:
    return hipq.chain(*(hipq.NewJob("ask", job_key=f"{n}") for n in range(6)))[0]


@pytest.mark.parametrize(
    ("follow", "end"),
    [(many_that_follow_one, complete), (long_chain, cancel)],
    ids=["fan", "chain"],
)
def test_whoever_ends_a_job_moves_some_of_very_many_and_the_sweep_the_rest(
    monkeypatch: pytest.MonkeyPatch, follow: Callable[[], Job], end: Callable[[Job], None]
) -> None:
    """Neither an answer nor the jobs of other queues wait for all that follows it."""
    assert (unholding.MOST_AT_ONCE, unholding.MOST_STEPS) == (500, 100)
    monkeypatch.setattr(unholding, "MOST_AT_ONCE", 2)
    monkeypatch.setattr(unholding, "MOST_STEPS", 2)
    needed = follow()
    HandWorker().work()
    sweep = Sweep(get_instance())

    end(needed)
    held = Job.objects.held().count()

    assert held == 3
    assert [sweep.run(), sweep.run(), sweep.run()] == [2, 1, 0]


@pytest.mark.parametrize("end", [complete, cancel])
def test_of_many_that_follow_the_same_jobs_each_is_judged_once(
    monkeypatch: pytest.MonkeyPatch, end: Callable[[Job], None]
) -> None:
    """The cost of hundreds of jobs that follow hundreds grows with their links, not faster."""
    needed = [hipq.enqueue("ask", job_key=f"{n}") for n in range(4)]
    followers = [hipq.enqueue("echo", after=needed).pk for _ in range(3)]
    HandWorker().work()
    judged: list[int] = []

    def judge(ids: Collection[int], using: str) -> dict[int, Verdict]:
        judged.extend(ids)
        return needs.verdicts(ids, using)

    monkeypatch.setattr("hipq_django.dependencies.unholding.verdicts", judge)
    for job in needed:
        end(job)

    assert not Job.objects.held().exists()
    assert judged == followers


# A member of a batch that is requeued while the batch is judged


def half_of_a_cancelled_batch() -> tuple[Job, Job]:
    """A batch whose two members were cancelled, and `then` with them; the first runs again.

    Return the one that runs, and the other one.
    """
    with hipq.batch(then=hipq.NewJob("echo")) as batch:
        jobs = batch.enqueue_many([hipq.NewJob("ask", job_key=key) for key in ("a", "b")])
    for job in jobs:
        cancel(job)
    first, other = (Job.objects.get(pk=job.pk) for job in jobs)
    again = hipq.requeue(first, dependents=True)
    HandWorker().work()
    return Job.objects.get(pk=again.pk), other


@pytest.mark.postgres
def test_what_follows_a_batch_is_left_while_a_member_is_being_requeued(session: Session) -> None:
    again, other = half_of_a_cancelled_batch()
    session.begin()
    fresh = session(lambda: hipq.requeue(other, dependents=True))

    hipq.complete(again, 1)
    session.commit()
    HandWorker().work()
    hipq.complete(Job.objects.get(pk=fresh.pk), 1)

    assert Job.objects.live().get(job_type__name="echo").hold_time is None


@pytest.mark.skipif(connection.vendor == "sqlite", reason="SQLite lets others wait for the block")
def test_another_thread_cannot_add_to_a_batch_whose_block_is_open(session: Session) -> None:
    """What it adds would be committed at once, and stay if the block raises."""
    new = hipq.NewJob("echo")

    with hipq.batch() as batch:
        other = copy_context()  # as threads get it from `asyncio.to_thread`
        for add in (
            lambda: batch.enqueue(new),
            lambda: batch.enqueue_many([new]),
            lambda: hipq.enqueue("echo", batch=batch),
            lambda: other.run(hipq.enqueue, "echo", batch=batch.pk),
        ):
            with pytest.raises(hipq.InvalidJobError, match="its block is in another thread"):
                session(add)

    assert not Job.objects.exists()
