"""What runs for every batch costs the same however many jobs are finished or in the future.

Each statement is explained in the moment before it runs, among 30,000 future and 30,000 final
jobs, with statistics that are fresh, missing, or of a table that looked quite different.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import DateTimeField, Model
from django.test import Client
from pytest_django import DjangoDbBlocker

import hipq_django as hipq
from hipq_django.answers.api import answer_callback
from hipq_django.answers.callback_urls import Token
from hipq_django.conf.instances import get_instance
from hipq_django.database import clock
from hipq_django.database.transactions import worker_transaction
from hipq_django.dependencies.unholding import Sweep, unhold_after
from hipq_django.domain.ordering import Order
from hipq_django.domain.shares import Visit
from hipq_django.domain.states import Outcome, State
from hipq_django.engines.statements import IS_EARLY
from hipq_django.maintenance import early_answers, recovery, reranking, retention
from hipq_django.models import Answer, Job, JobType, Queue, Worker
from hipq_django.models.catalog import get_job_type, get_queue
from hipq_django.monitoring import counts
from hipq_django.monitoring.overview import take
from hipq_django.sharing.visits import ShardedQueue
from tests.admin_pages import html, list_url
from tests.databases import forget_statistics
from tests.declaring import Declare
from tests.factories import AnswerFactory, WorkerFactory
from tests.hand_worker import HandWorker
from tests.plans import SLACK_PAGES, assert_good, watched_plans

pytestmark = [pytest.mark.conformance, pytest.mark.django_db, pytest.mark.fast]

BACKLOG = 30_000
BUSY = 20
SECOND = timedelta(seconds=1)
STATISTICS: dict[str, list[str]] = {
    "sqlite": ["fresh", "missing"],
    "postgresql": ["fresh", "missing", "of a storm"],
}
LATER = {
    "sqlite": "strftime('%Y-%m-%d %H:%M:%f000', {}, (number * {} / 1000.0) || ' seconds')",
    "postgresql": "{} + number * {} * interval '1 millisecond'",
}


@pytest.fixture(scope="module", params=STATISTICS[connection.vendor])
def backlog(
    request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: DjangoDbBlocker
) -> Iterator[str]:
    """The rows that nothing should cost, and statistics of some kind; the kind is returned."""
    kind: str = request.param
    with django_db_blocker.unblock():
        try:
            _set_autovacuum(on=False)
            truncate()
            add_final_jobs()
            if kind == "of a storm":
                _pass_a_storm()
            _add_future_jobs()
            if kind == "fresh":
                execute("ANALYZE")
            yield kind
        finally:
            _forget_everything()


def _pass_a_storm() -> None:
    """Gather statistics while half of the jobs are in states in which few are for long."""
    job_type, queue = get_job_type("default", "echo"), get_queue("default", "q")
    jobs = [
        Job.objects.create(job_type=job_type, queue=queue, attempt=1, **state)
        for state in (
            {"state": State.ERROR, "error": "broken"},
            {"state": State.RUNNING, "has_pending_answer": True},
        )
    ]
    early = AnswerFactory.create(job_type="echo", job_key="early-1")
    _copy(Job, f"CASE WHEN number % 2 = 0 THEN {jobs[0].pk} ELSE {jobs[1].pk} END")
    _copy(Answer, str(early.pk), job_key="'early-' || number")
    execute("ANALYZE")
    execute("DELETE FROM hipq_job WHERE state <> 'final'")
    execute("DELETE FROM hipq_answer WHERE status = 'early'")
    execute("VACUUM hipq_job, hipq_answer")


def add_final_jobs() -> None:
    """A job in a hundred failed; every job had a key and an answer."""
    job_type, queue = get_job_type("default", "echo"), get_queue("default", "q")
    failed, succeeded = (
        Job.objects.create(
            job_type=job_type, queue=queue, job_key=key, state=State.FINAL, outcome=outcome,
            error=error, attempt=1,
        )
        for key, outcome, error in (
            ("old-0", Outcome.FAILED, "broken"),
            ("old-1", Outcome.SUCCEEDED, "NONE"),
        )
    )  # fmt: skip
    answer, _ = (
        Answer.objects.create(
            job=job, job_type="echo", job_key=job.job_key, kind="response", payload=1, status="late"
        )
        for job in (failed, succeeded)
    )
    key = "'old-' || number"
    pattern = f"CASE WHEN number % 100 = 0 THEN {failed.pk} ELSE {succeeded.pk} END"
    _copy(Job, pattern, job_key=key)
    _copy(Answer, str(answer.pk), job_key=key, job_id="job_id + number")


def _copy(model: type[Model], pattern: str, **changed: str) -> None:
    """Let the database copy rows until there are enough: Python takes ten times as long.

    Which row is copied, and what differs, are expressions of a copy's number; no two copies
    have the same times.
    """
    copied = {}
    for field in model._meta.local_concrete_fields:
        name = field.get_attname()
        moved = LATER[connection.vendor] if isinstance(field, DateTimeField) else "{}"
        copied[name] = changed.get(name, moved.format(name, 1))
    del copied["id"]
    table = model._meta.db_table
    execute(
        f"WITH RECURSIVE copies(number) AS "
        f"(SELECT 2 UNION ALL SELECT number + 1 FROM copies WHERE number < {BACKLOG - 1}) "
        f"INSERT INTO {table} ({', '.join(copied)}) "
        f"SELECT {', '.join(copied.values())} FROM copies JOIN {table} ON id = {pattern}"
    )


def _add_future_jobs() -> None:
    """One for each second of some hours."""
    later = clock.now("default") + timedelta(days=1)
    first, second = (
        hipq.enqueue("echo", job_key=f"later-{n}", queue="q", scheduled_run_time=later + n * SECOND)
        for n in range(2)
    )
    moved = LATER[connection.vendor].format("scheduled_run_time", 1_000)
    rank = f"rank + CAST(number AS bigint) * {second.rank - first.rank}"
    _copy(Job, str(first.pk), job_key="'later-' || number", scheduled_run_time=moved, rank=rank)


def _set_autovacuum(*, on: bool) -> None:
    if connection.vendor == "postgresql":
        for table in ("hipq_job", "hipq_answer"):
            execute(f"ALTER TABLE {table} SET (autovacuum_enabled = {on})")


def truncate() -> None:
    """Statistics tell of pages too, and other tests may have left some with dead rows alone."""
    if connection.vendor == "postgresql":
        execute("TRUNCATE hipq_job, hipq_answer, hipq_attempt, hipq_link, hipq_step")


def _forget_everything() -> None:
    if connection.vendor == "postgresql":
        truncate()
        forget_statistics(connection)
        execute("ALTER TABLE hipq_job RESET (autovacuum_enabled)")
        execute("ALTER TABLE hipq_answer RESET (autovacuum_enabled)")
    else:
        execute("DELETE FROM sqlite_stat1") if _has_statistics() else None
    for model in (Answer, Job, JobType, Queue, Worker):
        model._default_manager.all()._raw_delete("default")


def _has_statistics() -> bool:
    return "sqlite_stat1" in connection.introspection.table_names()


@pytest.fixture
def planner(backlog: str) -> None:
    """One that looks up a few ids or keys in the right index, whatever the statistics say."""
    if backlog != "fresh" and getattr(connection, "pg_version", 180_000) < 180_000:
        pytest.skip("needs PostgreSQL 18 where statistics are wrong")


def execute(sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


by_customer = hipq.KeyLimit("customer", 2)


@pytest.fixture
def queue(backlog: str) -> Queue:
    return Queue.objects.get(name="q")


@pytest.mark.parametrize("order", Order.values)
@pytest.mark.parametrize("limit", [0, 10])
def test_an_idle_pass(queue: Queue, limit: int, order: str) -> None:
    """Nothing is due: a worker asks this many times a second."""
    Queue.objects.filter(pk=queue.pk).update(throttle_limit=limit)
    worker = HandWorker("q")
    worker.run_pass()  # learns the order of the queue

    with watched_plans() as plans:
        worker.run_pass()

    # In the other orders the jobs of the future stand between the due ones, in the index alone.
    assert_good(plans, pages=SLACK_PAGES if order == Order.TIME else BACKLOG // 100)
    assert len(plans) == 1


@pytest.mark.parametrize("limit", [0, BUSY])
def test_a_batch_from_the_claim_to_the_end(queue: Queue, limit: int) -> None:
    Queue.objects.filter(pk=queue.pk).update(throttle_limit=limit)
    hipq.enqueue_many(hipq.NewJob("echo", n, job_key=f"new-{n}", queue="q") for n in range(BUSY))
    worker = HandWorker("q")

    with watched_plans() as plans:
        claimed = worker.work()

    assert_good(plans)
    assert len(claimed) == BUSY
    assert Job.objects.filter(pk__in=[job.pk for job in claimed]).final().count() == BUSY


def test_a_queue_with_throttlers(queue: Queue, settings: Any) -> None:
    settings.HIPQ = {"default": {"QUEUES": {"q": {"THROTTLERS": [f"{__name__}.by_customer"]}}}}
    worker = HandWorker("q")
    for _ in range(2):
        hipq.enqueue_many(hipq.NewJob("ask", {"customer": n}, queue="q") for n in range(BUSY))
        with watched_plans() as plans:
            claimed = worker.run_pass()

    assert_good(plans)
    assert len(claimed) == BUSY


def test_requests_from_the_claim_to_the_answer(queue: Queue) -> None:
    hipq.enqueue_many(hipq.NewJob("ask", job_key=f"new-{n}", queue="q") for n in range(BUSY))
    HandWorker("q").work()

    with watched_plans() as plans:
        answers = [hipq.complete("ask", f"new-{n}", "yes") for n in range(3)]
        late = hipq.complete("echo", "old-7", "yes")

    assert_good(plans)
    assert {answer.status for answer in answers} == {"accepted"}
    assert late.status == "late"


def test_answers_by_url(queue: Queue) -> None:
    jobs = hipq.enqueue_many(hipq.NewJob("ask", queue="q") for n in range(BUSY))
    HandWorker("q").work()

    with watched_plans() as plans:
        answers = [answer_callback(Token("default", job.pk, 1), "response", 1) for job in jobs[:3]]

    assert_good(plans)
    assert {answer.status for answer in answers} == {"accepted"}


@pytest.mark.parametrize("handled", [False, True])
@pytest.mark.usefixtures("planner")
def test_a_batch_of_answers(queue: Queue, declare: Declare, handled: bool) -> None:
    declared = declare("question", queue="q")(lambda job: hipq.WAIT)
    if handled:
        declared.on_response(lambda job, response: response)
    hipq.enqueue_many(hipq.NewJob("question", job_key=f"new-{n}") for n in range(BUSY))
    HandWorker("q").work()

    with watched_plans() as plans:
        answers = hipq.receive_many(
            [
                *[hipq.NewAnswer("question", f"new-{n}", message_id=f"m-{n}") for n in range(BUSY)],
                hipq.NewAnswer("echo", "old-7"),
                hipq.NewAnswer("echo", "later-7", error="no"),
                hipq.NewAnswer("echo", "unknown"),
            ]
        )

    assert_good(plans)
    assert [answer.status for answer in answers[-4:]] == ["accepted", "late", "early", "early"]


def test_answers_that_came_before_the_claim(queue: Queue) -> None:
    for number in range(BUSY):
        AnswerFactory.create(job_type="ask", job_key=f"new-{number}")
    hipq.enqueue_many(hipq.NewJob("ask", job_key=f"new-{n}", queue="q") for n in range(BUSY))
    worker = HandWorker("q")

    with watched_plans() as plans:
        worker.work()

    assert_good(plans)
    assert Answer.objects.filter(job_type="ask", status="accepted").count() == BUSY


@pytest.mark.postgres
def test_whether_an_answer_came_early(queue: Queue) -> None:
    """A claim asks this by a function, whose statement no plan of the claim shows."""
    AnswerFactory.create(job_type="echo", job_key="later-7")
    [job_type] = JobType.objects.values_list("pk", flat=True).filter(name="echo")

    with watched_plans() as plans, connection.cursor() as cursor:
        for key in ("later-7", "later-8"):
            cursor.execute(IS_EARLY.call, [key, job_type])

    assert_good(plans)
    assert len(plans) == 2


def test_failures_from_the_claim_to_the_decision(queue: Queue, declare: Declare) -> None:
    @declare("break", queue="q", retry=hipq.Fixed(60))
    def break_it(job: Job) -> None:
        raise ValueError

    hipq.enqueue_many(hipq.NewJob("break") for _ in range(BUSY))
    worker = HandWorker("q")

    with watched_plans() as plans:
        worker.work()  # the handlers raise
        worker.work()  # the policy decides

    assert_good(plans)
    assert Job.objects.filter(job_type__name="break", state="retry").count() == BUSY


def test_responses_that_wait_for_their_handler(queue: Queue, declare: Declare) -> None:
    @declare("question", queue="q")
    def question(job: Job) -> object:
        return hipq.WAIT

    @question.on_response
    def answered(job: Job, response: object) -> object:
        return response

    hipq.enqueue_many(hipq.NewJob("question", job_key=f"new-{n}") for n in range(BUSY))
    worker = HandWorker("q")
    worker.work()
    for number in range(BUSY):
        hipq.complete("question", f"new-{number}", "yes")

    with watched_plans() as plans:
        worker.work()

    assert_good(plans)
    assert Job.objects.filter(job_type__name="question").final().count() == BUSY


def test_jobs_of_factor_0_when_the_limit_is_reached(queue: Queue) -> None:
    Queue.objects.filter(pk=queue.pk).update(throttle_limit=1)
    for factor in [1] * BUSY + [0] * BUSY:
        hipq.enqueue("ask", queue="q", throttle_factor=factor)
    worker = HandWorker("q")

    with watched_plans() as plans:
        claimed = worker.work()

    assert_good(plans)
    assert len(claimed) == BUSY + 1


@pytest.mark.parametrize("find_something", [False, True])
def test_upkeep(queue: Queue, find_something: bool) -> None:
    """Timeouts, lost workers and claims, early answers: often looked for, found now and then."""
    config = get_instance()
    long_ago = clock.now("default") - timedelta(days=2)
    WorkerFactory.create(state="stopped", heartbeat_time=long_ago)
    if find_something:
        HandWorker("q")  # of which nothing is lost
        hipq.enqueue_many(hipq.NewJob("ask", queue="q", timeout=0.001) for n in range(BUSY))
        HandWorker("q").work()
        hipq.enqueue_many(hipq.NewJob("ask", queue="q") for n in range(BUSY))
        HandWorker.crashed()
        AnswerFactory.create(job_type="ask", job_key="early")
        AnswerFactory.create(receive_time=long_ago)

    worker = HandWorker("q", threads=0)
    worker.scheduler.rotation.queues = {queue.pk: queue}

    with watched_plans() as plans:
        found = [
            worker.scheduler.release_unconfirmed(),
            recovery.time_out_overdue(config),
            recovery.recover_lost(config),
            early_answers.match_early(config),
            early_answers.expire_early(config),
        ]
        recovery.forget_workers(config)

    assert_good(plans)
    assert found == ([0, BUSY, BUSY, 0, 1] if find_something else [0] * 5)


@pytest.mark.usefixtures("planner")
def test_the_release_of_what_followed(queue: Queue) -> None:
    """By the process that has ended what the jobs waited for, and by the sweep."""
    new = hipq.NewJob("echo", queue="q")
    needed = hipq.enqueue_many([new] * BUSY)
    for _ in range(BUSY):
        hipq.enqueue("echo", queue="q", after=needed, on="final")
    with hipq.batch(always=new) as batch:
        needed += batch.enqueue_many([new] * BUSY)

    with watched_plans() as plans:
        assert Sweep(get_instance()).run() == 0
    hipq.cancel_many(Job.objects.filter(pk__in=[job.pk for job in needed]))
    with watched_plans() as more:
        unhold_after([job.pk for job in needed], "default")
        assert not Job.objects.held().exists()
        Sweep(get_instance()).run()

    assert_good(plans)
    # Each link looks up its job, and meets the versions from before its end.
    assert_good(more, pages=BUSY * BUSY)


@pytest.mark.postgres
@pytest.mark.parametrize("order", Order.values)
def test_a_visit_of_a_shard(queue: Queue, order: str) -> None:
    Queue.objects.filter(pk=queue.pk).update(throttle_limit=2 * BUSY, order=order)
    hipq.enqueue_many(hipq.NewJob("echo", n, job_key=f"new-{n}", queue="q") for n in range(BUSY))
    HandWorker("q").run_pass()
    hipq.enqueue_many(hipq.NewJob("echo", n, job_key=f"last-{n}", queue="q") for n in range(BUSY))
    visit = Visit(0, lambda own, now: (own, own))

    with watched_plans() as plans:
        own = ShardedQueue(get_instance(), "q", ["default"]).visit(visit, worker_transaction)

    assert_good(plans, pages=SLACK_PAGES if order == Order.TIME else BACKLOG // 100)
    assert [own.running, own.due] == [BUSY, BUSY]


def test_the_look_for_wrong_ranks(queue: Queue) -> None:
    """Once a minute the index of waiting jobs is looked through, and no row."""
    with watched_plans() as plans:
        reranking.find_strays(get_instance())

    assert_good(plans, pages=BACKLOG // 100)


@pytest.mark.usefixtures("planner")
def test_an_enqueue(queue: Queue) -> None:
    with watched_plans() as plans:
        hipq.enqueue("ask", job_key="later-7", queue="q", on_conflict="return")
        hipq.enqueue("echo", job_key="later-7", queue="q", on_conflict="return")
        hipq.enqueue("echo", job_key="later-8", queue="q", on_conflict="replace")

    assert_good(plans)


def test_a_batch_that_is_pruned(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "PAGE_SIZE", BUSY)
    with watched_plans() as plans:
        number, _ = retention._delete_page(queue.jobs.final(), "update_time")

    assert_good(plans)
    assert number == BUSY


@pytest.mark.parametrize("outcome", ["failed", "timed_out"])
def test_the_list_of_jobs_with_one_outcome(
    admin_client: Client, backlog: str, outcome: str
) -> None:
    with watched_plans() as plans:
        html(admin_client, list_url(Job), outcome=outcome)

    assert_good(plans)


def test_the_counts_of_hipq_status(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "COUNT_LIMIT", BUSY)

    with watched_plans() as plans:
        [found] = [q for q in take(get_instance()).queues if q.name == "q"]

    assert_good(plans)
    assert (found.due, found.scheduled) == (0, BUSY + 1)
