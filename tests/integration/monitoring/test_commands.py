"""`hipq_status` and `hipq_prune`."""

import json
from datetime import timedelta
from io import StringIO
from unittest.mock import ANY

import pytest
from django.core.management import CommandError, call_command, load_command_class
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.domain.states import NONE
from hipq_django.maintenance import retention
from hipq_django.models import Answer, Attempt, Batch, Job, Link, Queue, catalog
from hipq_django.monitoring import counts
from tests.factories import AnswerFactory, JobFactory, JobTypeFactory, WorkerFactory
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db


def said(*arguments: str) -> str:
    """Return what a command prints."""
    out = StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()


def status() -> dict[str, object]:
    """Return what `hipq_status --json` says of queue q."""
    queues = json.loads(said("hipq_status", "--json"))["queues"]
    [found] = [queue for queue in queues if queue["name"] == "q"]
    return dict(found)


@pytest.mark.parametrize(
    "name",
    ["status", "jobs", "schedules", "prune", "doctor", "worker", "consume", "flow", "shards"],
)
def test_an_error_of_the_system_checks_keeps_no_command_from_running(name: str) -> None:
    """Of another app, or the very throttler because of which a queue is looked at."""
    app = "hipq_django.flow" if name == "flow" else "hipq_django"

    assert load_command_class(app, f"hipq_{name}").requires_system_checks == []


@pytest.mark.conformance
def test_status_counts_the_live_jobs_of_each_queue() -> None:
    Queue.objects.create(name="q", throttle_limit=5, order="ageing")
    now = timezone.now()
    hipq.enqueue("nobody", queue="q", scheduled_run_time=now - timedelta(seconds=90))
    hipq.enqueue("nobody", queue="q", scheduled_run_time=now + timedelta(hours=1))
    waiting = hipq.enqueue("nobody", queue="q", throttle_factor=2)
    Job.objects.filter(pk=waiting.pk).update(state="running", attempt=1)

    found = status()

    oldest = found.pop("oldest_due_seconds")
    assert isinstance(oldest, float)
    assert 90 <= oldest < 100
    assert found == {
        "name": "q",
        "throttle_limit": 5.0,
        "order": "ageing",
        "paused": False,
        "served": False,
        "due": 1,
        "scheduled": 1,
        "running": 1,
        "awaiting_answer": 1,
        "in_error": 0,
        "load": 2.0,
        "problem": None,
        "capped": False,
        "quiet_seconds": None,
        "last_hour": {
            "ended": 0,
            "succeeded": 0,
            "failed": 0,
            "timed_out": 0,
            "capped": False,
        },
        "failing": False,
        "timing_out": False,
        "unanswered": False,
    }


def test_status_says_how_jobs_ended_in_the_last_hour() -> None:
    failing, fine = JobTypeFactory.create_batch(2)
    for number in range(12):
        outcome = {"outcome": "failed", "error": "boom"} if number < 10 else {}
        JobFactory.create(job_type=failing, state="final", **outcome)
    JobFactory.create(job_type=fine, state="final")

    overview = json.loads(said("hipq_status", "--json"))
    lines = [" ".join(line.split()) for line in said("hipq_status").splitlines()]

    [queue] = [row for row in overview["queues"] if row["name"] == failing.queue.name]
    assert (queue["last_hour"]["ended"], queue["last_hour"]["failed"]) == (12, 10)
    assert (queue["failing"], queue["timing_out"]) == (True, False)
    assert queue["quiet_seconds"] < 60
    types = {row["name"]: row["failing"] for row in overview["job_types"]}
    assert (types[failing.name], types[fine.name]) == (True, False)
    assert f"queue {failing.queue.name} 12 10 0 failing" in lines
    assert f"job type {fine.name} 1 0 0 -" in lines


def test_status_writes_nothing(settings: Settings) -> None:
    """During a deployment the last release asks, too, such as by the probe of a container."""
    settings.HIPQ = {"default": {"QUEUES": {"q": {"THROTTLE_LIMIT": 4}}}}
    catalog.sync("default")
    settings.HIPQ = {"default": {"QUEUES": {"q": {"THROTTLE_LIMIT": 10}, "gone": {}}}}

    assert status()["throttle_limit"] == 4
    assert list(Queue.objects.filter(name__in=["q", "gone"]).values_list("name", flat=True)) == [
        "q"
    ]


def test_status_gives_the_ages_that_apps_above_the_queue_tell_a_unit() -> None:
    text = said("hipq_status")

    assert "oldest wake 0 s" in text
    assert "wake seconds" not in text


def test_a_script_is_told_what_holds_a_queue_and_where_counting_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(counts, "COUNT_LIMIT", 2)
    Queue.objects.create(name="q", throttler_problem="throttler by_region raised KeyError")
    Queue.objects.create(name="r")
    for number in range(3):
        hipq.enqueue("nobody", queue="q")
        hipq.complete("nobody", f"key-{number}")

    overview = json.loads(said("hipq_status", "--json"))

    found = {queue["name"]: queue for queue in overview["queues"]}
    assert (found["q"]["due"], found["q"]["capped"]) == (2, True)
    assert (found["r"]["due"], found["r"]["capped"]) == (0, False)
    assert found["q"]["problem"] == "throttler by_region raised KeyError"
    assert found["r"]["problem"] is None
    assert (overview["unmatched_answers"], overview["capped"]) == (2, True)


def test_status_prints_a_table_that_says_what_holds_a_queue() -> None:
    Queue.objects.create(name="q", paused=True)
    Queue.objects.create(name="r", throttler_problem="throttler by_region raised KeyError")
    hipq.enqueue("echo", queue="r")

    lines = {line.split()[0]: line for line in said("hipq_status").splitlines() if line}

    assert lines["q"].endswith("paused, no worker")
    assert "blocked: throttler by_region raised KeyError, no worker" in lines["r"]
    assert "No worker is running." in lines.values()


def test_status_says_where_nobody_serves_a_queue() -> None:
    for name in ("q", "r", "s"):
        Queue.objects.create(name=name)
    WorkerFactory.create(name="shop:7", queues=["r"])
    WorkerFactory.create(name="shop:8", queues=["s"], silent=True)
    WorkerFactory.create(name="shop:9", source="post", silent=True)

    lines = {line.split()[0]: line for line in said("hipq_status").splitlines() if line}

    assert lines["q"].endswith("no worker")
    assert lines["r"].endswith("served")
    assert lines["s"].endswith("no worker")
    assert lines["shop:7"].split()[1] == "running"
    assert lines["shop:8"].split()[1] == "silent"
    assert lines["shop:9"].split()[1:3] == ["post", "silent"]


def test_status_says_what_is_in_trouble() -> None:
    since = (timezone.now() - timedelta(seconds=90)).isoformat()
    troubles = {"unhold_jobs": {"since": since, "reason": "DataError: NUL"}}
    WorkerFactory.create(name="shop:7", troubles=troubles)
    WorkerFactory.create(name="shop:8", state="stopped", troubles=troubles)

    lines = [" ".join(line.split()) for line in said("hipq_status").splitlines()]
    [worker] = json.loads(said("hipq_status", "--json"))["workers"]

    assert [line for line in lines if "NUL" in line] == ["unhold_jobs shop:7 90 s DataError: NUL"]
    [trouble] = worker["troubles"]
    assert trouble == {"name": "unhold_jobs", "seconds": ANY, "reason": "DataError: NUL"}


def final(queue: str, days: float, batch: Batch | None = None) -> Job:
    """Return a job that ended this many days ago, with an attempt and an answer."""
    job = hipq.enqueue("echo", queue=queue, job_key=f"{queue}-{days}")
    Job.objects.filter(pk=job.pk).update(state="running", attempt=1, batch=batch)
    then = timezone.now() - timedelta(days=days)
    Job.objects.filter(pk=job.pk).update(
        state="final", outcome="failed", error="broken", update_time=then
    )
    Attempt.objects.create(job=job, attempt=1, error="broken")
    hipq.complete("echo", job.job_key, response=1)
    return job


@pytest.mark.conformance
def test_prune_deletes_final_jobs_past_the_retention_of_their_queue() -> None:
    Queue.objects.create(name="short", retention_days=1)
    Queue.objects.create(name="long", retention_days=10)
    kept = [final("short", 0.5), final("long", 9), hipq.enqueue("nobody", queue="short")]
    for queue, days in (("short", 2), ("long", 11)):
        final(queue, days)

    printed = said("hipq_prune").splitlines()

    assert set(printed) >= {"short: deleted 1", "long: deleted 1"}
    assert list(Job.objects.order_by("pk")) == kept
    assert Attempt.objects.count() == Answer.objects.count() == 2


@pytest.mark.conformance
@pytest.mark.parametrize(("succeeded", "failed"), [(1, 10), (10, 1), (1, 1)])
def test_successes_have_a_retention_of_their_own(succeeded: float, failed: float) -> None:
    queue = Queue.objects.create(
        name="q", retention_days=failed, retention_days_succeeded=succeeded
    )
    job_type = JobTypeFactory.create(name="echo", queue=queue)

    def old(days: float, outcome: str = "succeeded", error: str = NONE) -> Job:
        values = {"outcome": outcome, "error": error, "state": "final"}
        then = timezone.now() - timedelta(days=days)
        job: Job = JobFactory.create(job_type=job_type, queue=queue, update_time=then, **values)
        return job

    kept = [old(succeeded - 0.1), old(failed - 0.1, "failed", "broken")]
    needed = old(succeeded + 0.1)
    hipq.enqueue("echo", after=[needed])
    for _ in range(2):
        old(succeeded + 0.1)
        old(failed + 0.1, "failed", "broken")

    assert "q: would delete 4" in said("hipq_prune", "--dry-run")
    assert "q: deleted 4" in said("hipq_prune")
    assert list(Job.objects.final().order_by("pk")) == [*kept, needed]
    assert "q: deleted 2" in said("hipq_prune", "--days", "0.5")


def old_answer(status: str, days: float) -> Answer:
    then = timezone.now() - timedelta(days=days)
    answer: Answer = AnswerFactory.create(status=status, receive_time=then)
    return answer


@pytest.mark.conformance
def test_the_statements_of_a_prune_do_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite takes 1,000 conditions: after a million rows of a thousand at a time it refused."""
    monkeypatch.setattr(retention, "PAGE_SIZE", 1)
    for _ in range(5):
        old_answer("unmatched", 20)

    with CaptureQueriesContext(connection) as statements:
        assert "answers: deleted 5" in said("hipq_prune")

    bounds = [query["sql"].count('"hipq_answer"."id" >= ') for query in statements.captured_queries]
    assert max(bounds) == 1


@pytest.mark.conformance
def test_prune_deletes_answers_without_a_job_past_their_own_retention(settings: Settings) -> None:
    """An early one stays until its time to live is over."""
    settings.HIPQ = {"default": {"ANSWER_RETENTION_DAYS": 3}}
    kept = [old_answer("unmatched", 2), old_answer("early", 4)]
    for _ in range(2):
        old_answer("unmatched", 4)

    assert "answers: would delete 2" in said("hipq_prune", "--dry-run")
    assert "answers: deleted 2" in said("hipq_prune")

    assert list(Answer.objects.order_by("pk")) == kept


def old_batch(days: float, **jobs: float) -> Batch:
    """Return a batch that was made this many days ago, with a job in each of these queues."""
    batch = Batch.objects.create(create_time=timezone.now() - timedelta(days=days))
    for queue, ended in jobs.items():
        final(queue, ended, batch)
    return batch


@pytest.mark.conformance
def test_a_batch_is_pruned_with_the_last_of_its_jobs() -> None:
    Queue.objects.create(name="short", retention_days=1)
    Queue.objects.create(name="long", retention_days=10)
    old_batch(12, short=2, long=11)
    old_batch(12)
    kept = [old_batch(12, short=3, long=9), old_batch(0.5)]

    assert "batches: would delete 1" in said("hipq_prune", "--dry-run")  # jobs are still there
    assert "batches: deleted 2" in said("hipq_prune")

    assert list(Batch.objects.order_by("pk")) == kept


def test_a_batch_stays_while_a_job_names_what_it_has_waited_for() -> None:
    Queue.objects.create(name="q", retention_days=1)
    Link.objects.create(job=final("q", 0.5), needs_batch=old_batch(12))

    assert "batches: deleted 0" in said("hipq_prune")
    assert "batches: deleted 1" in said("hipq_prune", "--days", "0.1")


def test_days_override_the_retention_and_a_dry_run_only_counts() -> None:
    Queue.objects.create(name="q", retention_days=100)
    final("q", 2)

    assert "q: would delete 1" in said("hipq_prune", "--days", "1", "--dry-run")
    assert "q: deleted 1" in said("hipq_prune", "--days", "1")


@pytest.mark.parametrize("days", ["-1", "nan", "1e9"])
def test_days_out_of_range_are_refused(days: str) -> None:
    with pytest.raises(CommandError, match="give a number from 0 to 36,500"):
        call_command("hipq_prune", "--days", days)


@pytest.mark.conformance
def test_a_successor_outlives_its_pruned_origin() -> None:
    Queue.objects.create(name="q", retention_days=1)
    fresh = hipq.requeue(final("q", 2))

    said("hipq_prune")
    run_due_jobs()

    fresh.refresh_from_db()
    assert fresh.outcome == "succeeded"
