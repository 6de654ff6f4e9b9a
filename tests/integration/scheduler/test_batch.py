"""The five steps of the batch: what leaves it, what stays in it, what is never read twice."""

from __future__ import annotations

import logging
import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

import hipq_django as hipq
from hipq_django.database import isolation
from hipq_django.database.isolation import PATIENCE_SECONDS
from hipq_django.domain.ordering import Order, Ordering
from hipq_django.domain.retries import RetryPolicy
from hipq_django.engines import engine_for
from hipq_django.models import Attempt, Job, Queue
from hipq_django.scheduler import batch, current_batch, persisting, polling
from tests.declaring import Declare
from tests.hand_worker import PROBE, HandWorker
from tests.passing import Passing
from tests.running import run_due_jobs

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]


def enqueue(number: int, name: str = "echo") -> list[Job]:
    return hipq.enqueue_many([hipq.NewJob(name, {"n": n}) for n in range(number)])


def states() -> list[str]:
    return list(Job.objects.order_by("pk").values_list("state", flat=True))


def test_a_claim_is_written_before_the_handler_starts() -> None:
    """T19: "initial in the database but really running" cannot happen."""
    (job,) = enqueue(1)
    worker = HandWorker()

    worker.run_pass()

    job.refresh_from_db()
    assert (job.state, job.attempt, job.worker) == ("running", 1, worker.row)
    assert len(worker.claims) == 1


def test_a_worker_claims_no_more_than_its_free_threads() -> None:
    enqueue(5)
    worker = HandWorker(threads=2)

    assert len(worker.run_pass()) == 2
    assert len(worker.run_pass()) == 0
    assert states() == ["running"] * 2 + ["initial"] * 3


def test_jobs_that_are_claimed_ahead_are_marked() -> None:
    enqueue(5)
    worker = HandWorker(threads=2, ahead=2)

    claimed = worker.run_pass()

    assert [job.prefetched for job in claimed] == [False, False, True, True]
    assert list(Job.objects.order_by("pk").values_list("prefetched", flat=True)[:4]) == [
        *(False, False, True, True)
    ]


def test_a_job_in_the_current_batch_is_not_fetched_again() -> None:
    """T31: not running means error, retry or final."""
    jobs = enqueue(2)
    worker, other = HandWorker(), HandWorker()

    assert worker.run_pass() == jobs
    assert worker.run_pass() == []
    assert other.run_pass() == []
    assert worker.batch.ids == [job.pk for job in jobs]


def test_a_job_that_ends_after_the_results_were_taken_is_saved_by_the_next_pass() -> None:
    """T31: it is not lost."""
    enqueue(2)
    worker = HandWorker()
    worker.run_pass()
    late = worker.claims.pop()
    worker.execute()
    worker.save()
    worker.claims.append(late)
    worker.execute()
    between = (states(), worker.batch.ids)

    worker.save()

    assert between == (["final", "running"], [late.id])
    assert (states(), worker.batch.ids) == (["final", "final"], [])


def test_a_job_is_read_from_the_database_before_it_runs_again(declare: Declare) -> None:
    """T32: what was changed in between counts."""
    seen: list[Any] = []

    @declare("flaky", retry=hipq.Fixed(seconds=0, max_attempts=2))
    def flaky(job: Job) -> None:
        seen.append(job.job_data)
        raise OSError

    job = hipq.enqueue("flaky", {"n": 1})
    worker = HandWorker()
    worker.work()
    Job.objects.filter(pk=job.pk).update(job_data={"n": 2})
    run_due_jobs()

    assert seen == [{"n": 1}, {"n": 2}]


@pytest.mark.fast
@pytest.mark.parametrize(("retry", "state"), [(None, "final"), (hipq.Fixed(60), "retry")])
def test_claims_and_results_are_written_in_few_statements(
    declare: Declare, retry: RetryPolicy | None, state: str
) -> None:
    """H95: not one statement for each job, whether they succeed, give up or are tried again."""
    declare("raises", retry=retry)(lambda job: 1 / 0)
    enqueue(200, "raises" if retry else "echo")
    worker = HandWorker()

    with CaptureQueriesContext(connection) as claiming:
        worker.run_pass()
    worker.execute()
    with CaptureQueriesContext(connection) as saving:
        worker.save()

    assert set(states()) == {state}
    assert len(claiming) <= 12
    assert len(saving) <= 12


def test_no_statement_has_more_results_than_its_bound_of_bytes(
    declare: Declare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred results of some megabytes would be more than the database takes at once."""
    monkeypatch.setattr(persisting, "MAX_BYTES", 100)
    declare("sized")(lambda job: "x" * (job.job_data - len('""')))
    jobs = [hipq.enqueue("sized", size) for size in (50, 50, 2, 300, 40, 40, 40)]
    worker = HandWorker()
    worker.run_pass()
    worker.execute()

    with CaptureQueriesContext(connection) as statements:
        worker.save()

    written = [query["sql"] for query in statements if is_update_of_jobs(query["sql"])]
    assert len(written) == len(("50 + 50", "2", "300, which is too large", "40 + 40", "40"))
    assert {Job.objects.get(pk=job.pk).outcome for job in jobs} == {"succeeded"}


def is_update_of_jobs(sql: str) -> bool:
    """Whether it is one by itself or the call of the function that does it."""
    functions = "finish|claim|claim_due|claim_fitting"
    update = rf'^\s*(WITH v AS .*)?UPDATE "?hipq_job"? | hipq_({functions})_[0-9a-f]{{8}}\('
    return re.search(update, sql, re.DOTALL) is not None


class Refusing:
    """Lets PostgreSQL be short of memory whenever jobs are written."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self, run: Any, sql: str, params: Any, *arguments: Any) -> Any:
        if is_update_of_jobs(sql):
            self.times += 1
            raise OperationalError("out of memory") from _ShortOfMemoryError()
        return run(sql, params, *arguments)


class _ShortOfMemoryError(Exception):
    sqlstate = "53200"


def test_a_result_whose_refusal_does_not_pass_fails_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(isolation, "LEAST_PAUSE", 0.0)
    monkeypatch.setattr(isolation, "MOST_PAUSE", 0.0)
    [job] = enqueue(1)
    worker, clocks = HandWorker(), Passing(monkeypatch)
    worker.run_pass()
    worker.execute()
    refused = Refusing()

    def refuse_success(run: Any, sql: str, params: Any, *arguments: Any) -> Any:
        says_so = "succeeded" in sql or "hipq_finish" in sql or "succeeded" in (params or ())
        call = refused if says_so else None
        return call(run, sql, params, *arguments) if call else run(sql, params, *arguments)

    with connection.execute_wrapper(refuse_success):
        worker.save()
        clocks.seconds += PATIENCE_SECONDS
        worker.save()
    run_due_jobs()

    job.refresh_from_db()
    assert (job.outcome, job.error) == ("failed", "OperationalError: out of memory")


@pytest.mark.parametrize("limit", [0, 5])
def test_a_fault_of_the_fast_path_fails_no_job(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, limit: int
) -> None:
    """The job has succeeded; as a failure it would run again."""
    Queue.objects.create(name="echoes", throttle_limit=limit)
    hipq.enqueue_many([hipq.NewJob("echo", queue="echoes") for _ in range(3)])
    worker = HandWorker()
    worker.run_pass()
    worker.execute()
    engine = type(engine_for("default"))

    def fail(*_: Any) -> Any:
        raise ValueError("not enough values to unpack")

    monkeypatch.setattr(engine, "finish", fail)
    monkeypatch.setattr(engine, "finish_and_claim", fail)
    worker.run_pass()

    assert set(Job.objects.values_list("outcome", flat=True)) == {"succeeded"}
    assert not Attempt.objects.exists()
    told = [one for one in caplog.records if "event=batch_write_failed" in one.getMessage()]
    assert len(told) == 3
    assert "not enough values" in str(told[0].exc_info)


def test_queues_take_turns() -> None:
    """A queue with a long backlog does not keep the others from the only thread."""
    for name in ("a", "b", "c"):
        hipq.enqueue_many([hipq.NewJob("echo", queue=name) for _ in range(10)])
    worker = HandWorker(threads=1)

    served = [worker.work()[0].queue.name for _ in range(9)]

    assert {served.count(name) for name in ("a", "b", "c")} == {3}


def test_a_queue_whose_first_job_needs_a_look_is_not_kept_waiting_by_others() -> None:
    """Most jobs need none, and are claimed of several queues at once."""
    hipq.enqueue("echo", queue="b", time_windows=["00:00-24:00"])
    for name in ("a", "c"):
        hipq.enqueue_many([hipq.NewJob("echo", queue=name) for _ in range(20)])
    worker = HandWorker(threads=3)

    served = [job.queue.name for _ in range(3) for job in worker.work()]

    assert "b" in served


def test_more_queues_than_one_statement_takes_are_served_in_one_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batch, "MAX_QUEUES_PER_CLAIM", 2)
    jobs = hipq.enqueue_many([hipq.NewJob("echo", queue=name) for name in "abcde"])

    assert HandWorker(threads=9).run_pass() == jobs


@pytest.fixture
def rare_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is, no look falls into a few passes."""
    monkeypatch.setattr(polling, "PROBE_SECONDS", 60.0)
    monkeypatch.setattr(polling, "MAX_SECONDS", 60.0)


@pytest.mark.usefixtures("rare_looks")
def test_a_queue_whose_turn_did_not_come_is_tried_before_the_next_look() -> None:
    jobs = hipq.enqueue_many([hipq.NewJob("echo", queue=name) for name in ("a", "b", "c")])
    worker = HandWorker(threads=1)
    first = worker.work()

    with CaptureQueriesContext(connection) as statements:
        others = worker.work() + worker.work()

    polling = [query["sql"] for query in statements if PROBE.search(query["sql"])]
    assert first + others == jobs
    assert polling == []


def test_the_look_for_due_jobs_locks_nothing_and_is_one_query() -> None:
    enqueue(3)
    worker = HandWorker()

    with CaptureQueriesContext(connection) as statements:
        queues = worker.scheduler.fetch_due()

    assert [busy.queue.name for busy in queues] == ["default"]
    assert len(statements) == 1
    assert "UPDATE" not in statements[0]["sql"]


def test_a_pass_over_idle_queues_is_two_queries(django_assert_num_queries: Any) -> None:
    Queue.objects.create(name="idle")
    worker = HandWorker()
    worker.run_pass()  # the first one of a process also asks what the database has

    with django_assert_num_queries(2):  # the other one asks for the wakes of flows
        assert worker.run_pass() == []


def test_a_pass_that_has_written_for_long_enough_leaves_the_other_results_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Due jobs of other queues wait meanwhile. What is left comes first the next time."""
    monkeypatch.setattr(current_batch, "FLUSH_RESULTS", 2)
    jobs = enqueue(5)
    worker = HandWorker()
    worker.run_pass()
    worker.execute()

    worker.scheduler.persist_batch(seconds=0)
    assert states() == ["final"] * 2 + ["running"] * 3
    worker.scheduler.persist_batch(seconds=0)
    assert states() == ["final"] * 4 + ["running"]
    assert [result.claim.job for result in worker.scheduler.persist_batch()] == jobs[4:]


@pytest.fixture
def slow_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look is one that took too long, and after it comes no other from the beginning."""
    monkeypatch.setattr(polling, "QUICK_SECONDS", 0.0)
    monkeypatch.setattr(polling, "SHARE", 1e-9)


@pytest.mark.fast
@pytest.mark.parametrize("backlog", [0, 3])
@pytest.mark.parametrize("order", Order.values)
def test_where_looks_are_slow_they_begin_at_the_front(
    slow_looks: None, order: str, backlog: int
) -> None:
    """What is enqueued now is found all the same, and before the front by the next whole look."""
    ranking = Ordering(order).as_ranking()
    Queue.objects.update_or_create(name="default", defaults={"order": order, "ranking": ranking})
    long_ago = timezone.now() - timedelta(hours=1)
    enqueue(backlog + 1)
    worker = HandWorker(threads=1)
    worker.work()
    worker.scheduler.fetch_due()

    early = hipq.enqueue("echo", scheduled_run_time=long_ago, priority=0)
    enqueue(1)
    claimed = worker.run_pass()

    has_front = backlog > 0 or order == Order.TIME
    assert (early in claimed) is not has_front
    assert len(claimed) == 1
    assert HandWorker().run_pass()[0] == (early if has_front else Job.objects.order_by("pk").last())


def test_a_queue_with_a_limit_is_looked_at_from_the_beginning(slow_looks: None) -> None:
    """Its order is strict."""
    Queue.objects.update_or_create(name="default", defaults={"throttle_limit": 1})
    enqueue(2)
    worker = HandWorker()
    worker.work()
    early = hipq.enqueue("echo", scheduled_run_time=timezone.now() - timedelta(hours=1))

    assert worker.run_pass() == [early]


def test_a_late_result_is_logged_and_dropped(caplog: pytest.LogCaptureFixture) -> None:
    (job,) = enqueue(1)
    worker = HandWorker()
    worker.run_pass()
    hipq.cancel(job)
    worker.execute()

    with caplog.at_level(logging.INFO, logger="hipq_django"):
        worker.save()

    [said] = [r for r in caplog.records if getattr(r, "event", "") == "result_dropped"]
    assert getattr(said, "job_id", 0) == job.pk
