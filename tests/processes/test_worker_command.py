"""`hipq_worker` as an operator meets it: its options, its log, its errors, its exit codes."""

import os
import re
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

import hipq_django as hipq
from hipq_django.models import Job, Queue, Worker
from tests.processes.conftest import Workers, eventually

pytestmark = pytest.mark.processes


def quick(number: int = 1, **options: object) -> list[Job]:
    """Enqueue jobs that end at once."""
    return [hipq.enqueue("quick", {"number": n}, **options) for n in range(number)]  # type: ignore[arg-type]


def refused(workers: Workers, *arguments: str, **environment: str) -> str:
    """Return the one line of a worker that cannot start."""
    command = [sys.executable, "-m", "django", "hipq_worker", "--no-reload", *arguments]
    ended = subprocess.run(
        command,
        env=workers.environment | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1, ended.stderr
    [line] = ended.stderr.strip().splitlines()
    return line


def test_until_idle_leaves_what_is_not_due_and_exits_with_0(workers: Workers) -> None:
    """The future, a paused queue, an unknown type and a job that waits do not keep it."""
    Queue.objects.create(name="paused", paused=True)
    done = quick(30)
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


def test_only_the_named_queues_are_served(workers: Workers) -> None:
    [mine], [other] = quick(), quick(queue="elsewhere")

    assert workers.run("chaos", "--until-idle") == 0

    mine.refresh_from_db()
    other.refresh_from_db()
    assert (mine.state, other.state) == ("final", "initial")


def test_each_event_is_one_line_of_keys_and_values(workers: Workers) -> None:
    [job] = quick(job_key="order-1")

    workers.run("chaos", "--until-idle")

    lines = [line for line in workers.log.read_text().splitlines() if f"job={job.pk} " in line]
    assert [line.partition("INFO ")[2] for line in lines] == [
        f"job={job.pk} type=quick key=order-1 attempt=1 event=started",
        f"job={job.pk} type=quick key=order-1 attempt=1 event=succeeded",
    ]


def test_several_processes_share_the_work_and_stop_together(workers: Workers) -> None:
    """A child that is killed is replaced; SIGTERM ends all."""
    supervisor = workers.start("chaos", "--processes", "2")
    running = Worker.objects.filter(state=Worker.State.RUNNING)
    eventually(lambda: running.count() == 2, "two workers have registered")
    victim = running[0]
    os.kill(int(victim.name.rpartition(":")[2]), signal.SIGKILL)
    eventually(lambda: running.exclude(pk=victim.pk).count() == 2, "the killed one is replaced")
    quick(50)
    eventually(lambda: not Job.objects.live().exists(), "every job is final")

    supervisor.terminate()

    assert supervisor.wait(timeout=30) == 0
    eventually(lambda: not running.exclude(pk=victim.pk).exists(), "no worker is running")


def test_a_child_that_ends_unasked_is_replaced_and_its_jobs_taken_over_at_once(
    workers: Workers,
) -> None:
    """Whatever its exit code; the beats are so slow that nobody could find it silent."""
    supervisor = workers.start("--processes", "2", HIPQ_TEST_HEARTBEAT_SECONDS="600")
    running = Worker.objects.filter(state=Worker.State.RUNNING)
    eventually(lambda: running.count() == 2, "two workers have registered")

    job = hipq.enqueue("exiting")
    eventually(lambda: Job.objects.get(pk=job.pk).is_final, "its loss is noticed")
    eventually(lambda: running.count() == 2, "the dead one is replaced")
    supervisor.terminate()

    assert supervisor.wait(timeout=60) == 0
    job.refresh_from_db()
    assert job.error.startswith("WorkerLost: ")
    states = sorted(Worker.objects.values_list("state", flat=True))
    assert states == ["lost", "stopped", "stopped"]
    assert "event=died exit_code=0" in workers.log.read_text()


def test_a_child_that_has_nothing_left_to_do_is_not_replaced(workers: Workers) -> None:
    quick(5)

    assert workers.run("--until-idle", "--processes", "2") == 0

    assert Worker.objects.count() == 2
    assert "event=died" not in workers.log.read_text()


def test_children_of_a_killed_supervisor_stop_by_themselves(workers: Workers) -> None:
    supervisor = workers.start("chaos", "--processes", "2")
    live = Worker.objects.filter(state__in=Worker.LIVE)
    eventually(lambda: live.count() == 2, "two workers have registered")

    supervisor.kill()

    eventually(lambda: not live.exists(), "both have signed off")


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


# What it says when it cannot start


def test_an_unknown_queue_is_named_with_the_nearest_one(workers: Workers) -> None:
    assert refused(workers, "chaoss").startswith(
        "CommandError: unknown queue 'chaoss', did you mean 'chaos'?"
    )


def test_an_unknown_instance_is_named(workers: Workers) -> None:
    line = refused(workers, "--instance", "defalt")

    assert line.startswith("CommandError: HIPQ has no instance 'defalt', did you mean 'default'?")


def test_a_database_without_the_tables_says_migrate(workers: Workers, tmp_path: Path) -> None:
    line = refused(workers, DATABASE_URL=f"sqlite:///{tmp_path}/empty")

    assert line == (
        "CommandError: database 'default' lacks migration hipq.0001_initial: run manage.py migrate."
    )


def test_a_database_that_cannot_be_reached_is_said_in_one_line(workers: Workers) -> None:
    line = refused(workers, DATABASE_URL="postgres://nobody@127.0.0.1:1/nothing")

    assert line.startswith("CommandError: database 'default' cannot be reached: ")


def test_an_option_out_of_range_is_said_in_one_line(workers: Workers) -> None:
    line = refused(workers, "--threads", "0")

    assert line == "CommandError: --threads 0: give a number from 1 to 1,000."


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--threads", "1001"), "--threads 1001: give a number from 1 to 1,000."),
        (("--processes", "-1"), "--processes -1: give a number from 1 to 1,000."),
        (("--interval", "0"), "--interval 0.0: give 0.001 to 3,600 seconds."),
        (("--interval", "nan"), "--interval nan: give 0.001 to 3,600 seconds."),
    ],
)
def test_an_option_out_of_range_is_refused(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(CommandError, match=f"^{re.escape(message)}$"):
        call_command("hipq_worker", *arguments)


def test_a_wrong_setting_is_refused(workers: Workers, tmp_path: Path) -> None:
    (tmp_path / "wrong_settings.py").write_text(
        "from tests.settings import *\nHIPQ = {'default': {'HEARTBEAT': 5}}\n"
    )
    path = f"{workers.environment['PYTHONPATH']}{os.pathsep}{tmp_path}"

    line = refused(workers, PYTHONPATH=path, DJANGO_SETTINGS_MODULE="wrong_settings")

    assert "HIPQ['default']: unknown option 'HEARTBEAT', did you mean 'HEARTBEAT_SECONDS'?" in line
