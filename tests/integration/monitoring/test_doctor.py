"""`hipq_doctor` finds what is really wrong, in the rows and in the database."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, connections
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.conf.instances import get_instance
from hipq_django.database import clock, transactions
from hipq_django.domain.states import NONE
from hipq_django.maintenance.early_answers import expire_early
from hipq_django.models import Answer, Job, Queue, Schedule, Worker
from hipq_django.monitoring import doctor
from hipq_django.monitoring.doctor import database
from hipq_django.monitoring.doctor.database import notices_dead_peer, writes_whole_pages
from hipq_django.monitoring.doctor.queues import endings
from hipq_django.monitoring.endings import Endings, Trend
from hipq_django.monitoring.overview import JobTypeEndings, Overview, QueueCounts
from tests.declaring import Declare
from tests.factories import (
    AnswerFactory,
    JobFactory,
    JobTypeFactory,
    QueueFactory,
    ScheduleFactory,
    WorkerFactory,
)
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


def execute(sql: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql)


def ago(**span: float) -> Any:
    return clock.now("default") - timedelta(**span)


# What it says


@pytest.mark.conformance
def test_a_healthy_instance_is_told_so() -> None:
    WorkerFactory.create()
    hipq.enqueue("echo")

    assert examined() == (0, "Nothing slows the queues.\n")
    assert examined("--json") == (0, "[]\n")


def test_an_edit_is_a_note_and_no_failure(settings: Settings) -> None:
    settings.HIPQ = {"default": {"QUEUES": {"bank": {"THROTTLE_LIMIT": 10}}}}
    call_command("hipq_sync")
    Queue.objects.filter(name="bank").update(throttle_limit=5)

    code, text = examined()

    assert (code, "queue bank: throttle_limit is 5.000, and 10 in the code." in text) == (0, True)
    assert "hipq_sync --reset bank" in text
    assert text.endswith("Nothing slows the queues.\n")


def test_warnings_have_an_exit_code_and_problems_another_and_come_first() -> None:
    AnswerFactory.create(status="unmatched")
    code, text = examined()
    assert (code, text.rpartition("\n\n")[2].splitlines()[-1]) == (3, "0 problems, 1 warning.")

    hipq.enqueue("echo", queue="q")
    code, text = examined()

    assert code == 4
    assert text.startswith("PROBLEM  queue q: no worker serves it; 1 job is due, the oldest for 0:")
    assert "\n         -> Start one: manage.py hipq_worker q\n" in text
    assert text.endswith("\n1 problem, 1 warning.\n")


def test_a_command_is_for_the_instance(settings: Settings) -> None:
    settings.HIPQ = {"default": {}, "shop": {}}
    hipq.enqueue("echo", queue="q", instance="shop")

    assert "manage.py hipq_worker q --instance shop\n" in examined("--instance", "shop")[1]
    with pytest.raises(CommandError, match="HIPQ has no instance 'bank'"):
        examined("--instance", "bank")


def test_nothing_else_is_said_where_migrations_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "missing_migrations", lambda using: ["hipq.0001_initial"])
    hipq.enqueue("echo")

    assert found() == {"missing_migrations": "database default"}


# Queues, processes, rows

SOURCE = {"SOURCE": "tests.mailbox.MailboxSource", "MAP": "tests.mailbox.read"}


def serve(**values: Any) -> Worker:
    worker: Worker = WorkerFactory.create(name="shop:7", **values)
    return worker


def due(queue: str = "q", name: str = "echo", **ago_: float) -> Job:
    return hipq.enqueue(name, queue=queue, scheduled_run_time=ago(**(ago_ or {"minutes": 2})))


def limited(limit: int, *running: int) -> Queue:
    """A queue with a limit, with jobs that run and weigh so much."""
    queue = QueueFactory.create(name="q", throttle_limit=limit)
    kind = JobTypeFactory.create(name="ask", queue=queue)
    for factor in running:
        JobFactory.create(queue=queue, job_type=kind, state="running", throttle_factor=factor)
    return Queue.objects.get()


def trouble(name: str, **since: float) -> dict[str, Any]:
    return {name: {"since": ago(**since).isoformat(), "reason": "DataError: NUL", "held": 1}}


def skip(times: int) -> None:
    """Have a schedule that was fired, then skipped so often, and run by hand since."""
    row = ScheduleFactory.create(name="s", next_time=ago(hours=-1))
    kinds = ["manual", *["skipped"] * times, "fired"]
    for hours, kind in enumerate(kinds):
        row.runs.create(kind=kind, due_time=ago(hours=hours))


CASES: dict[str, tuple[Callable[[], object], dict[str, str]]] = {
    "a queue without a worker": (
        lambda: hipq.enqueue("echo", queue="q"),
        {"no_worker": "problem of queue q"},
    ),
    "nothing is due yet": (
        lambda: hipq.enqueue("echo", queue="q", delay=60),
        {"no_worker": "warning of queue q"},
    ),
    "nothing is there": (lambda: QueueFactory.create(name="q"), {}),
    "all threads are held": (
        lambda: [serve(troubles=trouble("threads", seconds=5)), due()],
        {"threads_held": "warning of worker shop:7", "no_worker": "problem of queue q"},
    ),
    "a pause": (
        lambda: [serve(), due(), Queue.objects.update(paused=True)],
        {"paused": "warning of queue q"},
    ),
    "a pause without due jobs": (
        lambda: [serve(), QueueFactory.create(name="q", paused=True)],
        {},
    ),
    "just due": (lambda: [serve(), due(seconds=30)], {}),
    "overdue": (lambda: [serve(), due()], {"overdue": "warning of queue q"}),
    "long overdue": (lambda: [serve(), due(minutes=16)], {"overdue": "problem of queue q"}),
    "a full queue": (
        lambda: [serve(), limited(1, 1), due(name="ask")],
        {"limit_reached": "warning of queue q"},
    ),
    "a queue whose share is used up": (
        lambda: [serve(), limited(5, 2), due(name="ask"), Queue.objects.update(share=2)],
        {"limit_reached": "warning of queue q"},
    ),
    "a queue whose next job does not fit": (
        lambda: [serve(), limited(5, 2, 2), due(name="ask"), Job.objects.update(throttle_factor=2)],
        {"limit_reached": "warning of queue q"},
    ),
    "a full queue without an answer": (
        lambda: [serve(), limited(1, 1), due(name="ask", minutes=16)],
        {"unanswered": "problem of queue q"},
    ),
    "a throttler that raised": (
        lambda: [serve(), due(), Queue.objects.update(throttler_problem="x raised KeyError")],
        {"throttler_problem": "problem of queue q"},
    ),
    "a throttler that raised, and nothing is due": (
        lambda: [serve(), QueueFactory.create(throttler_problem="x raised KeyError")],
        {},
    ),
    "jobs without code do not hide that others are overdue": (
        lambda: [serve(), due(name="nobody", hours=1), due()],
        {"unknown_type": "problem of job type nobody", "overdue": "problem of queue q"},
    ),
    "jobs without code are not overdue": (
        lambda: [serve(), due(name="nobody", hours=1)],
        {"unknown_type": "problem of job type nobody"},
    ),
    "a silent worker": (lambda: serve(silent=True), {"silent_worker": "problem of worker shop:7"}),
    "a duty that fails": (
        lambda: serve(troubles=trouble("unhold_jobs", seconds=5)),
        {"worker_trouble": "warning of worker shop:7"},
    ),
    "a duty that goes on failing": (
        lambda: serve(troubles=trouble("unhold_jobs", seconds=70)),
        {"worker_trouble": "problem of worker shop:7"},
    ),
    "many early answers, an old one": (
        lambda: AnswerFactory.create(receive_time=ago(hours=13)),
        {"early_answers": "warning of instance default"},
    ),
    "an early answer": (AnswerFactory.create, {}),
    "a malformed message": (
        lambda: AnswerFactory.create(status="unmatched", kind="malformed", problem="no key"),
        {"malformed_messages": "warning of instance default"},
    ),
    "old answers that came in vain": (
        lambda: [AnswerFactory.create(receive_time=ago(hours=49)), expire_early(get_instance())],
        {},
    ),
    "an answer that came in vain, a day after it was kept as early": (
        lambda: [AnswerFactory.create(receive_time=ago(hours=25)), expire_early(get_instance())],
        {"unmatched_answers": "warning of instance default"},
    ),
    "a schedule that is not fired": (
        lambda: ScheduleFactory.create(name="s", next_time=ago(minutes=2)),
        {"schedule_late": "problem of schedule s"},
    ),
    "a schedule that cannot be fired": (
        lambda: ScheduleFactory.create(name="s", problem="no zone", next_time=ago(minutes=2)),
        {"schedule_problem": "problem of schedule s"},
    ),
    "a schedule that nobody declares": (
        lambda: ScheduleFactory.create(name="s", retired=True),
        {"schedule_retired": "warning of schedule s"},
    ),
    "a schedule whose last due times were skipped": (
        lambda: skip(5),
        {"schedule_skipping": "warning of schedule s"},
    ),
    "a schedule that skips now and then": (lambda: skip(4), {}),
    "a schedule that rests": (
        lambda: ScheduleFactory.create(name="s", paused=True, next_time=ago(minutes=2)),
        {},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_wrong_is_found_and_said_in_sentences_of_one_line(name: str) -> None:
    arrange, wanted = CASES[name]
    arrange()
    before = [list(model.objects.values()) for model in (Job, Queue, Answer, Schedule, Worker)]

    findings = [f for f in json.loads(examined("--json")[1]) if f["level"] != "note"]

    assert {f["code"]: f"{f['level']} of {f['where']}" for f in findings} == wanted
    for finding in findings:
        assert all(text and "\n" not in text for text in finding.values())
    after = [list(model.objects.values()) for model in (Job, Queue, Answer, Schedule, Worker)]
    assert after == before


def test_a_source_whose_consumer_is_silent_and_one_that_has_none(settings: Settings) -> None:
    settings.HIPQ = {"default": {"SOURCES": dict.fromkeys(("post", "bank", "shop"), SOURCE)}}
    WorkerFactory.create(name="shop:7", source="post", silent=True)
    WorkerFactory.create(name="shop:8", source="post")
    WorkerFactory.create(name="shop:9", source="bank")

    assert found() == {"silent_consumer": "consumer shop:7", "no_consumer": "source shop"}


def test_no_other_system_is_to_blame_for_jobs_that_gather_others(
    declare: Declare, settings: Settings
) -> None:
    """Here no gathered job starts: their parents fill the limit of their queue."""
    settings.HIPQ = {"default": {"SOURCES": {"post": SOURCE}}}
    serve()
    Queue.objects.create(name="q", throttle_limit=1)
    declare("parent")(lambda job: job.gather([hipq.NewJob("echo", queue="q")]))
    hipq.enqueue("parent", queue="q")
    run_due_jobs()
    Job.objects.waiting().update(scheduled_run_time=ago(minutes=20))

    assert found() == {"limit_reached": "queue q", "no_consumer": "source post"}
    code, text = examined()
    assert (code, "0 jobs wait for an answer" in text) == (3, True)


def test_held_jobs_are_not_overdue_and_do_not_hide_that_others_are(
    configure_queue: ConfigureQueue,
) -> None:
    serve()
    configure_queue(hipq.KeyLimit("tenant", 1), name="q")
    running = hipq.enqueue("echo", {"tenant": "acme"}, queue="q")
    Job.objects.filter(pk=running.pk).update(state="running", attempt=1)
    for _ in range(3):
        hipq.enqueue("echo", {"tenant": "acme"}, queue="q", scheduled_run_time=ago(hours=1))
    hipq.enqueue("echo", {"tenant": "globex"}, queue="q", scheduled_run_time=ago(seconds=30))
    assert found() == {}

    hipq.enqueue("echo", {"tenant": "initech"}, queue="q", scheduled_run_time=ago(minutes=2))

    assert found() == {"overdue": "queue q"}


def test_the_throttlers_of_a_blocked_queue_are_not_asked(configure_queue: ConfigureQueue) -> None:
    """They may fail here as they did in the worker."""
    asked = []

    def throttler(queue: Any, now: Any, running: Any, candidates: Any) -> list[Any]:
        asked.append(candidates)
        return [hipq.Run() for _ in candidates]

    serve()
    queue = configure_queue(throttler, name="q")
    job = due()
    problem = "throttler x raised KeyError"
    Queue.objects.filter(pk=queue.pk).update(throttler_problem=problem)

    assert found() == {"throttler_problem": "queue q"}
    assert str(hipq.explain(job)[0]) == f"The queue is blocked, because {problem}"
    assert not asked


@pytest.mark.parametrize("days", [(1, None), (9, 1)])
def test_final_jobs_that_nobody_prunes_but_none_that_others_wait_for(
    days: tuple[float, float | None],
) -> None:
    serve()
    others, succeeded = days
    queue = Queue.objects.create(
        name="q", retention_days=others, retention_days_succeeded=succeeded
    )
    old = JobFactory.create(
        queue=queue, job_type__name="echo", state="final", outcome="succeeded",
        update_time=ago(days=2.1),
    )  # fmt: skip
    assert found() == {"not_pruned": "queue q"}

    hipq.enqueue("echo", after=[old], delay=86_400)

    assert found() == {}


# How jobs end


COUNTS = QueueCounts("bank", 10.0, "time", False, True, 0, 0, 0, 0, 0, 0.0, 0.0, NONE)
USUALLY = Endings(succeeded=99, failed=1)


@pytest.mark.parametrize(
    ("of_queue", "of_types", "level", "where", "what"),
    [
        (
            Trend(Endings(succeeded=80, failed=20), USUALLY),
            {"charge": Trend(Endings(failed=15), USUALLY), "refund": Trend(Endings(failed=5))},
            "warning",
            "queue bank",
            "20 of the last 100 jobs failed within an hour (20%; 1% the day before): "
            "charge 15, refund 5.",
        ),
        (
            Trend(Endings(succeeded=10, timed_out=30)),
            {},
            "problem",
            "queue bank",
            "30 of the last 40 jobs timed out within an hour (75%; none ended the day before).",
        ),
        # A job type is told of where its queue, as a whole, is as usual.
        (
            Trend(Endings(succeeded=320, timed_out=31), Endings(succeeded=400)),
            {"charge": Trend(Endings(timed_out=31), Endings(succeeded=40)), "fine": Trend()},
            "problem",
            "job type charge",
            "31 of the last 31 jobs timed out within an hour (100%; 0% the day before).",
        ),
    ],
)
def test_jobs_that_fail_more_than_usual_are_told(
    of_queue: Trend, of_types: dict[str, Trend], level: str, where: str, what: str
) -> None:
    types = [JobTypeEndings(name, "bank", trend) for name, trend in of_types.items()]
    counts = dataclasses.replace(COUNTS, trend=of_queue)

    [finding] = endings(Overview("default", [counts], [], [], 0, 0, types))

    assert (finding.level, finding.where, finding.what) == (level, where, what)


# The database


def test_clocks_that_do_not_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "measure", lambda using: timedelta(seconds=-5.1))

    assert "this machine's clock is 5.1 s ahead of the database's" in examined()[1]


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


@pytest.mark.parametrize(
    ("size", "full_page_writes", "wal_compression", "whole"),
    [
        (1_000_000_001, "on", "off", True),
        (1_000_000_000, "on", "off", False),
        (1_000_000_001, "off", "off", False),
        (1_000_000_001, "on", "pglz", False),
    ],
)
def test_jobs_write_whole_pages_of_a_large_table(
    size: int, full_page_writes: str, wal_compression: str, whole: bool
) -> None:
    assert writes_whole_pages(size, full_page_writes, wal_compression) is whole


@postgres
@pytest.mark.parametrize(("version", "method"), [(140_010, "on"), (150_000, "lz4")])
def test_whole_pages_that_are_not_compressed(
    monkeypatch: pytest.MonkeyPatch, version: int, method: str
) -> None:
    """The settings are those of the whole server, so the test cannot change them."""
    monkeypatch.setattr(database, "writes_whole_pages", lambda *values: len(values) == 3)
    monkeypatch.setitem(vars(connections["default"]), "pg_version", version)

    assert found() == {"wal_compression": "database default"}
    assert f"ALTER SYSTEM SET wal_compression = '{method}'" in examined()[1]


@pytest.mark.parametrize(
    ("parameters", "notices"),
    [
        ({"host": "db.example"}, False),
        ({"host": "db.example", "tcp_user_timeout": 30_000}, True),
        ({"host": "db.example", "keepalives_idle": "10"}, True),
        ({"host": "/run/postgresql"}, True),
        ({"host": ""}, True),
    ],
)
def test_a_connection_by_tcp_must_be_told_when_its_peer_is_gone(
    parameters: dict[str, Any], notices: bool
) -> None:
    assert notices_dead_peer(parameters) is notices


LOOKS = ("hipq_doctor", "hipq_status", "hipq_jobs explain 7")


@postgres
@pytest.mark.django_db(transaction=True)
def test_commands_that_look_do_not_wait_for_a_locked_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transactions, "LOOK_SECONDS", 0.2)
    with other_session() as other, other.transaction():
        other.execute("LOCK TABLE hipq_job IN ACCESS EXCLUSIVE MODE")
        for command in LOOKS:
            with pytest.raises(CommandError, match="lock timeout"):
                call_command(*command.split())
    with connection.cursor() as cursor:
        cursor.execute("SHOW lock_timeout")
        assert cursor.fetchone() == ("0",)


@postgres
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("command", LOOKS)
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
    assert all(in_block and sql.endswith(", true)") for sql, in_block in settings)


@contextmanager
def other_session() -> Iterator[Any]:
    """A session beside Django's own."""
    import psycopg

    parameters = connections["default"].get_connection_params()
    for name in ("cursor_factory", "context", "prepare_threshold"):
        parameters.pop(name, None)
    with psycopg.connect(**parameters, autocommit=True) as session:
        yield session
