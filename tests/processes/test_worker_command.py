"""`hipq_worker` as an operator meets it: its options, its log, its errors, its exit codes."""

import json
import logging
import os
import re
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.utils import timezone

import hipq_django as hipq
from hipq_django import events
from hipq_django.models import Job, Queue, Worker
from hipq_django.processes.start_up import set_up_logging
from tests.processes.conftest import Workers, eventually

pytestmark = pytest.mark.processes

LEAST_SECONDS = "hipq_django.processes.held_threads.LEAST_SECONDS"


def quick(number: int = 1, **options: object) -> list[Job]:
    """Enqueue jobs that end at once."""
    return [hipq.enqueue("quick", {"number": n}, **options) for n in range(number)]  # type: ignore[arg-type]  # any options


def test_until_idle_leaves_what_is_not_due_and_exits_with_0(workers: Workers) -> None:
    """The future, a paused queue, an unknown type and a job that waits do not keep it."""
    Queue.objects.create(name="paused", paused=True)
    done = quick(5)
    left = [
        *quick(scheduled_run_time=timezone.now() + timedelta(hours=1)),
        *quick(queue="paused"),
        hipq.enqueue("nobody_declares_this"),
    ]
    waiting = hipq.enqueue("asking", {"notes": os.devnull}, job_key="a")

    assert workers.run("--until-idle") == 0

    states = dict(Job.objects.values_list("pk", "state"))
    assert {states[job.pk] for job in done} == {"final"}
    assert {states[job.pk] for job in left} == {"initial"}
    assert states[waiting.pk] == "running"


def test_due_jobs_of_a_type_that_it_does_not_declare_are_told_once(workers: Workers) -> None:
    for _ in range(2):
        hipq.enqueue("chaos.quik", queue="chaos")
        hipq.enqueue("elsewhere.quik", queue="elsewhere")
    hipq.enqueue("not_due", queue="chaos", delay=3_600)
    workers.start("chaos")
    eventually(lambda: "event=undeclared_jobs_due" in workers.log.read_text(), "it says so")
    beats = Worker.objects.get().heartbeat_time

    def has_beaten_on() -> bool:
        return Worker.objects.get().heartbeat_time > beats + timedelta(seconds=2)

    eventually(has_beaten_on, "it has looked again")

    told = re.findall(r"event=undeclared_jobs_due.*", workers.log.read_text())
    assert [line.partition(" msg=")[0] for line in told] == [
        "event=undeclared_jobs_due job_type=chaos.quik queue=chaos"
    ]
    assert "Declare it in the module jobs of an app, or add its module to AUTODISCOVER." in told[0]


def test_a_queue_that_is_made_later_is_served_unless_it_is_excluded(workers: Workers) -> None:
    """The worker's row says what it serves, and `explain` and `hipq_status` go by it."""
    quick(queue="slow", scheduled_run_time=timezone.now() + timedelta(days=1))
    workers.start("--exclude", "slow")
    eventually(Worker.objects.exists, "it has registered")

    [later], [slow] = quick(queue="made_later"), quick(queue="slow")
    eventually(lambda: Job.objects.get(pk=later.pk).is_final, "it serves the new queue")

    slow.refresh_from_db()
    assert slow.state == "initial"
    assert "No worker serves queue slow" in str(hipq.explain(slow)[0])
    shown = StringIO()
    call_command("hipq_status", stdout=shown)
    assert re.search(r"^slow .* no worker$", shown.getvalue(), re.MULTILINE)
    assert re.search(r"^made_later .* served$", shown.getvalue(), re.MULTILINE)
    assert "  all but slow  " in shown.getvalue()
    assert "queues=all excluded=slow " in log_of(workers)


def test_what_fails_is_heard_once_under_djangos_own_logging(workers: Workers) -> None:
    """With no LOGGING in the settings: what is given up is an error, what is tried again is none.

    Each has its traceback, and nobody says it a second time. An event is one line.
    """
    [job] = quick(job_key="order-1")
    retried, failed = hipq.enqueue("stumbling"), hipq.enqueue("boom", {"message": "no luck"})

    workers.run("--until-idle")

    log = log_of(workers)
    heard = re.findall(r"^\S+ \S+ (WARNING|ERROR) event=(\w+) job_id=(\d+)", log, re.MULTILINE)
    assert sorted(heard) == [
        ("ERROR", "job_failed", f"{failed.pk}"),
        ("WARNING", "attempt_failed", f"{retried.pk}"),
    ]
    assert log.count("event=job_failed") == log.count("\n  RuntimeError: no luck\n") == 1
    assert log.count("event=attempt_failed") == log.count("\n  OSError: a stumble\n") == 1
    assert log.count("Traceback (most recent call last)") == 2
    about = f"job_id={job.pk} job_type=quick job_key=order-1 queue=chaos attempt=1"
    lines = [line for line in log.splitlines() if f"job_id={job.pk} " in line]
    assert [line.partition("INFO ")[2] for line in lines] == [
        f"event=job_started {about}",
        f"event=job_succeeded {about}",
    ]


def test_the_level_that_the_project_has_set_counts_unless_v_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong = []
    for level, verbosity, counts in (
        (logging.NOTSET, None, logging.INFO),
        (logging.NOTSET, 0, logging.WARNING),
        (logging.WARNING, None, logging.WARNING),
        (logging.WARNING, 1, logging.INFO),
        (logging.INFO, 0, logging.WARNING),
    ):
        logger = logging.Logger("hipq_django", level)
        monkeypatch.setattr(events, "LOGGER", logger)
        with monkeypatch.context() as patch:
            patch.setattr(logging.getLogger(), "handlers", [])  # pytest's own
            set_up_logging(verbosity)
        if logger.level != counts or len(logger.handlers) != 1:
            wrong.append((level, verbosity, logger.level))
    assert not wrong


@pytest.mark.usefixtures("no_silence")
def test_a_child_that_is_recycled_is_replaced_while_its_handler_goes_on(
    workers: Workers, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    data = {"notes": str(tmp_path / "notes"), "gate": str(gate)}
    held = [hipq.enqueue("held", data)]
    command = workers.start("--processes", "2", "--threads", "1", "--max-jobs", "1")
    eventually(lambda: log_of(workers).count("event=worker_recycled") == 1, "it has enough")

    others = quick(2)

    eventually(lambda: outcomes_of(others) == {"succeeded"}, "others have run them")
    assert outcomes_of(held) == {"NONE"}
    gate.touch()
    eventually(lambda: outcomes_of(held) == {"succeeded"}, "it has ended")
    command.terminate()
    assert command.wait(timeout=60) == 0
    assert "event=process_died" not in log_of(workers)


def test_a_worker_does_not_wait_for_a_handler_whose_attempt_has_timed_out(
    workers: Workers, tmp_path: Path
) -> None:
    """It has had enough, and its handler hangs: nobody else is there to time the job out."""
    data = {"notes": str(tmp_path / "notes"), "gate": str(tmp_path / "never")}
    job = hipq.enqueue("held", data, timeout=1)
    worker = workers.start("held", "--max-jobs", "1")

    assert worker.wait(timeout=60) == 0

    assert list(job.attempts.values_list("kind", flat=True)) == ["timed_out"]
    assert "event=thread_held " in log_of(workers)
    assert "event=jobs_put_back" not in log_of(workers)


def test_a_worker_whose_threads_never_become_free_says_so_and_ends(
    workers: Workers, tmp_path: Path
) -> None:
    """Another one decides what follows the timeout."""
    workers.environment["HIPQ_TEST_CONSTANTS"] = json.dumps({LEAST_SECONDS: 1})
    data = {"notes": str(tmp_path / "notes"), "gate": str(tmp_path / "never")}
    job = hipq.enqueue("held", data, timeout=0.5)

    assert workers.run("held", "--threads", "1") == 5

    [worker] = Worker.objects.all()
    held = worker.troubles["threads"]
    assert held["reason"] == f"1 of 1 threads held by jobs whose attempts are over: {job.pk}"
    assert (worker.is_held, worker.state) == (True, "stopped")
    assert workers.run("held", "--until-idle") == 0
    assert outcomes_of([job]) == {"timed_out"}
    assert log_of(workers).count("event=thread_held ") == 1
    assert "event=all_threads_held " in log_of(workers)


def test_a_worker_that_has_grown_runs_a_job_and_makes_way(workers: Workers) -> None:
    """Any worker has more than a megabyte."""
    worker = workers.start("chaos", "--max-memory", "1")
    eventually(lambda: Worker.objects.filter(state="running").exists(), "it runs, and stays")
    assert worker.poll() is None
    [job] = quick()

    assert worker.wait(timeout=60) == 0

    job.refresh_from_db()
    assert job.outcome == "succeeded"
    assert re.search(r"event=worker_recycled .* msg=.it has \d\d+ MB of memory; ", log_of(workers))


def outcomes_of(jobs: list[Job]) -> set[str]:
    """Return the outcomes of jobs as they are stored."""
    rows = Job.objects.filter(pk__in=[job.pk for job in jobs])
    return set(rows.values_list("outcome", flat=True))


def log_of(workers: Workers) -> str:
    """Return what the workers have logged."""
    return workers.log.read_text()


def test_reload_starts_anew_with_the_changed_code(workers: Workers, tmp_path: Path) -> None:
    """The process keeps its id, drains first, and knows the new handler afterwards."""
    package = tmp_path / "reloaded"
    package.mkdir()
    (package / "__init__.py").touch()
    code = (
        "import hipq_django as hipq\n\n\n@hipq.job_type('reloaded', queue='reload')\n"
        "def reloaded(job):\n    return {!r}\n"
    )
    (package / "jobs.py").write_text(code.format("old"))
    (tmp_path / "reload_settings.py").write_text(
        "from tests.settings import *\nINSTALLED_APPS = [*INSTALLED_APPS, 'reloaded']\n"
    )
    path = f"{workers.environment['PYTHONPATH']}{os.pathsep}{tmp_path}"
    worker = workers.start("--reload", PYTHONPATH=path, DJANGO_SETTINGS_MODULE="reload_settings")
    first = hipq.enqueue("reloaded", queue="reload")
    eventually(lambda: Job.objects.get(pk=first.pk).is_final, "the old code has run")

    (package / "jobs.py").write_text(code.format("brand new"))
    eventually(lambda: Worker.objects.count() == 2, "the worker has started anew")
    second = hipq.enqueue("reloaded", queue="reload")
    eventually(lambda: Job.objects.get(pk=second.pk).is_final, "the new code has run")

    results = Job.objects.order_by("pk").values_list("result", flat=True)
    assert list(results) == ["old", "brand new"]
    assert {worker.pid} == {int(w.name.rpartition(":")[2]) for w in Worker.objects.all()}
