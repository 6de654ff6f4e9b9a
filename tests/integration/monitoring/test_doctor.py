"""`hipq_doctor` finds what is really wrong, in the rows and in the database."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, connections
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.conf.instances import get_instance
from hipq_django.database import clock, transactions
from hipq_django.maintenance.early_answers import expire_early
from hipq_django.models import Answer, Job, Queue, Schedule
from hipq_django.monitoring.doctor import measure
from tests.declaring import Declare
from tests.factories import AnswerFactory, JobFactory, JobTypeFactory, WorkerFactory
from tests.integration.conftest import ConfigureQueue
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db


def postgres(test: Any) -> Any:
    """Mark a test of what only PostgreSQL has."""
    return pytest.mark.conformance(pytest.mark.postgres(test))


def examined(*arguments: str) -> tuple[int, str]:
    """Return the exit code of `hipq_doctor`, and what it printed."""
    out = StringIO()
    code = 0
    try:
        call_command("hipq_doctor", "--no-color", *arguments, stdout=out)
    except SystemExit as end:
        code = int(str(end.code))
    return code, out.getvalue()


def found() -> dict[str, str]:
    """Return the codes that `hipq_doctor --json` gives, and where; without edits."""
    _, text = examined("--json")
    return {f["code"]: f["where"] for f in json.loads(text) if f["level"] != "note"}


def test_an_edit_is_a_note_and_no_failure(settings: Settings) -> None:
    settings.HIPQ = {"default": {"QUEUES": {"bank": {"THROTTLE_LIMIT": 10}}}}
    call_command("hipq_sync")
    Queue.objects.filter(name="bank").update(throttle_limit=5)

    code, text = examined()

    assert (code, "queue bank: throttle_limit is 5.000, and 10 in the code." in text) == (0, True)
    assert "hipq_sync --reset bank" in text
    assert text.endswith("Nothing slows the queues.\n")


def execute(sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


def long_ago(**span: float) -> Any:
    return clock.now("default") - timedelta(**span)


# What it says


@pytest.mark.conformance
def test_a_healthy_instance_is_told_so() -> None:
    WorkerFactory.create()
    hipq.enqueue("echo")

    assert examined() == (0, "Nothing slows the queues.\n")
    assert examined("--json") == (0, "[]\n")


def test_a_throttler_that_holds_as_it_was_told_is_no_finding(
    configure_queue: ConfigureQueue,
) -> None:
    WorkerFactory.create()
    configure_queue(hipq.KeyLimit("tenant", 1), name="q")
    running = hipq.enqueue("echo", {"tenant": "acme"}, queue="q")
    Job.objects.filter(pk=running.pk).update(state="running", attempt=1)
    held = hipq.enqueue("echo", {"tenant": "acme"}, queue="q")
    Job.objects.filter(pk=held.pk).update(scheduled_run_time=long_ago(hours=1))

    assert found() == {}

    free = hipq.enqueue("echo", {"tenant": "globex"}, queue="q")
    Job.objects.filter(pk=free.pk).update(scheduled_run_time=long_ago(hours=2), rank=-1)
    assert found() == {"overdue": "queue q"}


def test_held_jobs_do_not_hide_that_others_are_overdue(configure_queue: ConfigureQueue) -> None:
    """Unless these have just become due."""
    WorkerFactory.create()
    configure_queue(hipq.KeyLimit("tenant", 1), name="q")
    running = hipq.enqueue("echo", {"tenant": "acme"}, queue="q")
    Job.objects.filter(pk=running.pk).update(state="running", attempt=1)
    for _ in range(3):
        hipq.enqueue("echo", {"tenant": "acme"}, queue="q", scheduled_run_time=long_ago(hours=1))
    hipq.enqueue("echo", {"tenant": "globex"}, queue="q", scheduled_run_time=long_ago(seconds=30))
    assert found() == {}

    hipq.enqueue("echo", {"tenant": "initech"}, queue="q", scheduled_run_time=long_ago(minutes=2))

    assert found() == {"overdue": "queue q"}


def test_a_queue_whose_jobs_fail_is_found() -> None:
    WorkerFactory.create()
    kind = JobTypeFactory.create(name="echo")
    for _ in range(10):
        JobFactory.create(job_type=kind, state="final", outcome="failed", error="boom")

    assert found() == {"failing": f"queue {kind.queue.name}"}


def test_warnings_have_an_exit_code_of_their_own() -> None:
    WorkerFactory.create()
    hipq.enqueue("echo", queue="q")
    Queue.objects.update(paused=True)

    code, text = examined()

    assert code == 3
    assert text.startswith("WARNING  queue q: paused, and 1 job is due, the oldest for 0:00:")
    assert "\n         -> Resume it in the admin" in text
    assert text.endswith("\n0 problems, 1 warning.\n")


def test_problems_have_another_and_come_first() -> None:
    hipq.enqueue("echo", queue="q")
    AnswerFactory.create(status="unmatched")

    code, text = examined()

    assert code == 4
    assert text.startswith("PROBLEM  queue q: no worker serves it; 1 job is due")
    assert "\n         -> Start one: manage.py hipq_worker q\n" in text
    assert text.endswith("\n1 problem, 1 warning.\n")


def test_an_unknown_instance_is_refused() -> None:
    with pytest.raises(CommandError, match="HIPQ has no instance 'shop'"):
        examined("--instance", "shop")


# Queues, workers, jobs


def test_jobs_that_are_overdue_though_a_worker_is_there() -> None:
    WorkerFactory.create()
    hipq.enqueue("echo", queue="q", scheduled_run_time=long_ago(minutes=2))

    assert found() == {"overdue": "queue q"}


def test_a_full_queue_that_does_not_move() -> None:
    WorkerFactory.create()
    queue = Queue.objects.create(name="q", throttle_limit=1)
    JobFactory.create(queue=queue, job_type__name="ask", state="running")
    hipq.enqueue("ask", queue="q", scheduled_run_time=long_ago(minutes=2))

    assert found() == {"limit_reached": "queue q"}


def test_a_queue_is_full_if_its_next_job_does_not_fit() -> None:
    WorkerFactory.create()
    queue = Queue.objects.create(name="q", throttle_limit=5)
    first = JobFactory.create(queue=queue, job_type__name="ask", state="running", throttle_factor=2)
    JobFactory.create(queue=queue, job_type=first.job_type, state="running", throttle_factor=2)
    hipq.enqueue("ask", queue="q", throttle_factor=2, scheduled_run_time=long_ago(minutes=2))
    hipq.enqueue("ask", queue="q", scheduled_run_time=long_ago(minutes=1.5))

    assert found() == {"limit_reached": "queue q"}
    assert "4 of 5, and the next job needs 2; 2 jobs are due" in examined()[1]


def test_no_other_system_is_to_blame_for_jobs_that_gather_others(
    declare: Declare, settings: Settings
) -> None:
    """Here no gathered job starts: their parents fill the limit of their queue."""
    source = {"SOURCE": "tests.mailbox.MailboxSource", "MAP": "tests.mailbox.read"}
    settings.HIPQ = {"default": {"SOURCES": {"post": source}}}
    WorkerFactory.create()
    Queue.objects.create(name="q", throttle_limit=1)
    declare("parent")(lambda job: job.gather([hipq.NewJob("echo", queue="q")]))
    hipq.enqueue("parent", queue="q")
    run_due_jobs()
    Job.objects.waiting().update(scheduled_run_time=long_ago(minutes=20))

    assert found() == {"limit_reached": "queue q", "no_consumer": "source post"}
    code, text = examined()
    assert (code, "0 jobs wait for an answer" in text) == (3, True)


def test_a_worker_without_heartbeat() -> None:
    WorkerFactory.create(name="shop:7", silent=True)

    assert found() == {"silent_worker": "worker shop:7"}


def test_a_source_whose_consumer_is_silent_and_one_that_has_none(settings: Settings) -> None:
    source = {"SOURCE": "tests.mailbox.MailboxSource", "MAP": "tests.mailbox.read"}
    settings.HIPQ = {"default": {"SOURCES": dict.fromkeys(("post", "bank", "shop"), source)}}
    WorkerFactory.create(name="shop:7", source="post", silent=True)
    WorkerFactory.create(name="shop:8", source="post")
    WorkerFactory.create(name="shop:9", source="bank")

    assert found() == {"silent_consumer": "consumer shop:7", "no_consumer": "source shop"}


def test_jobs_of_a_type_without_code() -> None:
    WorkerFactory.create()
    hipq.enqueue("nobody", queue="q")

    assert found() == {"unknown_type": "job type nobody"}


def test_jobs_without_code_are_not_overdue_and_do_not_hide_that_others_are() -> None:
    """More workers, as for others, would not help them."""
    WorkerFactory.create()
    for _ in range(3):
        hipq.enqueue("nobody", queue="q", scheduled_run_time=long_ago(hours=1))
    assert found() == {"unknown_type": "job type nobody"}

    hipq.enqueue("echo", queue="q", scheduled_run_time=long_ago(minutes=2))

    assert found() == {"unknown_type": "job type nobody", "overdue": "queue q"}


def test_time_outs_and_errors_that_nobody_works_off() -> None:
    WorkerFactory.create()
    JobFactory.create(state="running", job_type__name="ask", deadline=long_ago(minutes=2))
    JobFactory.create(state="error", job_type__name="boom", update_time=long_ago(minutes=2))

    assert found() == {"time_outs": "instance default", "undecided": "instance default"}


def test_a_throttler_that_raised(configure_queue: ConfigureQueue) -> None:
    WorkerFactory.create()
    queue = configure_queue(name="q")
    Queue.objects.filter(pk=queue.pk).update(throttler_problem="throttler by_region raised")
    assert found() == {}  # nothing is due, so nobody asks it any more

    hipq.enqueue("echo", queue="q")
    assert found() == {"throttler_problem": "queue q"}


def test_the_throttlers_of_a_blocked_queue_are_not_asked(configure_queue: ConfigureQueue) -> None:
    """They may fail here as they did in the worker."""
    asked = []

    def throttler(queue: Any, now: Any, running: Any, candidates: Any) -> list[Any]:
        asked.append(candidates)
        return [hipq.Run() for _ in candidates]

    WorkerFactory.create()
    queue = configure_queue(throttler, name="q")
    job = hipq.enqueue("echo", queue="q", scheduled_run_time=long_ago(minutes=2))
    problem = "throttler x raised KeyError"
    Queue.objects.filter(pk=queue.pk).update(throttler_problem=problem)

    assert found() == {"throttler_problem": "queue q"}
    assert str(hipq.explain(job)[0]) == f"The queue is blocked, because {problem}"
    assert not asked


def test_throttlers_are_asked_about_the_overdue_jobs_of_a_queue_together(
    configure_queue: ConfigureQueue,
) -> None:
    asked = []

    def hold(queue: Any, now: Any, running: Any, candidates: Any) -> list[Any]:
        asked.append(len(candidates))
        return [hipq.Hold("later")] * len(candidates)

    WorkerFactory.create()
    configure_queue(hold, name="q")
    new = hipq.NewJob("echo", queue="q", scheduled_run_time=long_ago(minutes=2))
    hipq.enqueue_many([new] * 3)

    assert found() == {}
    assert asked == [3]


def test_a_throttler_that_cannot_be_imported(settings: Settings) -> None:
    settings.HIPQ = {"default": {"QUEUES": {"q": {"THROTTLERS": ["no.such"]}}}}

    assert found() == {"throttler_setting": "instance default"}


# Answers and old jobs


def test_answers_that_wait_for_their_job_too_long() -> None:
    AnswerFactory.create(receive_time=long_ago(hours=13))

    assert found() == {"early_answers": "instance default"}


def test_only_the_unmatched_answers_of_the_last_day_are_told() -> None:
    """They are kept as early for a day before: then they are two days old."""
    AnswerFactory.create(receive_time=long_ago(hours=49))
    expire_early(get_instance())
    assert found() == {}

    AnswerFactory.create(receive_time=long_ago(hours=25))
    expire_early(get_instance())
    assert found() == {"unmatched_answers": "instance default"}


def test_final_jobs_that_nobody_prunes() -> None:
    queue = Queue.objects.create(name="q", retention_days=1)
    JobFactory.create(
        queue=queue, job_type__name="echo", state="final", update_time=long_ago(days=2.1)
    )

    assert found() == {"not_pruned": "queue q"}


def test_final_jobs_that_others_wait_for_are_not_to_be_pruned() -> None:
    WorkerFactory.create()
    queue = Queue.objects.create(name="q", retention_days=1)
    needed = JobFactory.create(
        queue=queue, job_type__name="echo", state="final", outcome="succeeded",
        update_time=long_ago(days=2.1),
    )  # fmt: skip
    hipq.enqueue("echo", after=[needed], delay=86_400)

    assert found() == {}


@pytest.mark.conformance
def test_nothing_is_changed() -> None:
    hipq.enqueue("nobody", queue="q")
    AnswerFactory.create()
    before = [list(model.objects.values()) for model in (Job, Queue, Answer)]

    examined()

    assert [list(model.objects.values()) for model in (Job, Queue, Answer)] == before


# The database


@postgres
@pytest.mark.django_db(transaction=True)
def test_an_index_whose_creation_failed() -> None:
    hipq.enqueue_many([hipq.NewJob("echo"), hipq.NewJob("echo")])
    with pytest.raises(IntegrityError):
        execute("CREATE UNIQUE INDEX CONCURRENTLY hipq_job_half ON hipq_job (job_key)")
    Job.objects.all().delete()

    assert found() == {"invalid_indexes": "database default"}
    execute("DROP INDEX hipq_job_half")


@postgres
def test_autovacuum_that_is_off_for_a_table() -> None:
    execute("ALTER TABLE hipq_answer SET (autovacuum_enabled = off)")

    assert found() == {"autovacuum_off": "table hipq_answer"}


@postgres
@pytest.mark.django_db(transaction=True)
def test_commands_that_look_do_not_wait_for_a_locked_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transactions, "LOOK_SECONDS", 0.2)
    with other_session() as other, other.transaction():
        other.execute("LOCK TABLE hipq_job IN ACCESS EXCLUSIVE MODE")
        for command in ("hipq_doctor", "hipq_status", "hipq_jobs explain 7"):
            with pytest.raises(CommandError, match="lock timeout"):
                call_command(*command.split())
    with connection.cursor() as cursor:
        cursor.execute("SHOW lock_timeout")
        assert cursor.fetchone() == ("0",)


@postgres
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("command", ["hipq_doctor", "hipq_status", "hipq_jobs explain 7"])
def test_commands_that_look_leave_no_setting_in_a_session(command: str) -> None:
    """Behind a pooler the next statement of somebody else may get that session."""
    JobFactory.create(id=7, job_type__name="echo")
    WorkerFactory.create()
    settings = []

    def note(run: Any, sql: str, *rest: Any) -> Any:
        if "lock_timeout" in sql:
            settings.append((sql, connection.in_atomic_block))
        return run(sql, *rest)

    with connection.execute_wrapper(note):
        call_command(*command.split(), stdout=StringIO())

    assert settings
    assert all("set_config" in sql and in_block for sql, in_block in settings)
    assert all(sql.endswith(", true)") for sql, _ in settings)


@contextmanager
def other_session() -> Iterator[Any]:
    """A session beside Django's own."""
    import psycopg

    parameters = connections["default"].get_connection_params()
    for name in ("cursor_factory", "context", "prepare_threshold"):
        parameters.pop(name, None)
    with psycopg.connect(**parameters, autocommit=True) as session:
        yield session


@pytest.mark.conformance
def test_schedules_are_measured_with_as_many_queries_however_many_there_are() -> None:
    def add(name: str) -> Schedule:
        row = hipq.schedule(name, hipq.NewJob("echo"), hipq.Every(hours=1))
        row.runs.create(due_time=long_ago(hours=9), kind="fired")
        for hours in range(1, 6):
            row.runs.create(due_time=long_ago(hours=hours), kind="skipped")
        row.runs.create(due_time=long_ago(minutes=1), kind="manual")
        return row

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            measure(get_instance())
        return len(captured)

    WorkerFactory.create()
    last = add("a")
    queries()  # the first one asks what the database has
    of_one = queries()
    for name in ("b", "c", "d"):
        last = add(name)

    assert queries() == of_one
    assert [state.skipped for state in measure(get_instance()).schedules] == [5] * 4
    assert found()["schedule_skipping"].startswith("schedule ")
    last.runs.create(due_time=long_ago(hours=0.5), kind="missed")
    assert [state.skipped for state in measure(get_instance()).schedules] == [5] * 3 + [0]
