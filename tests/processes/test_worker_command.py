"""`hipq_worker` as an operator meets it: its options, its log, its errors, its exit codes."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

import hipq_django as hipq
from hipq_django.models import Attempt, Job, Queue, Worker
from hipq_django.processes.stop_signals import TOGETHER_SECONDS
from tests.processes.conftest import DEADLINE_SECONDS, Workers, eventually

pytestmark = pytest.mark.processes


def quick(number: int = 1, **options: object) -> list[Job]:
    """Enqueue jobs that end at once."""
    return [hipq.enqueue("quick", {"number": n}, **options) for n in range(number)]  # type: ignore[arg-type]  # any options


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


def test_due_jobs_of_a_type_that_it_does_not_declare_are_told_once(workers: Workers) -> None:
    for _ in range(2):
        hipq.enqueue("chaos.quik", queue="chaos")
        hipq.enqueue("elsewhere.quik", queue="elsewhere")
    hipq.enqueue("not_due", queue="chaos", delay=3_600)
    workers.start("chaos", HIPQ_TEST_HEARTBEAT_SECONDS="0.5")
    eventually(lambda: "event=undeclared_jobs_due" in workers.log.read_text(), "it says so")
    beats = Worker.objects.get().heartbeat_time

    def has_beaten_on() -> bool:
        return Worker.objects.get().heartbeat_time > beats + timedelta(seconds=2)

    eventually(has_beaten_on, "it has looked again")

    told = re.findall(r"event=undeclared_jobs_due.*", workers.log.read_text())
    assert [line.partition(":")[0] for line in told] == [
        "event=undeclared_jobs_due job_type=chaos.quik queue=chaos"
    ]
    assert told[0].endswith(
        "Declare it in the module jobs of an app, or add its module to AUTODISCOVER."
    )


def test_only_the_named_queues_are_served(workers: Workers) -> None:
    [mine], [other] = quick(), quick(queue="elsewhere")

    assert workers.run("chaos", "--until-idle") == 0

    mine.refresh_from_db()
    other.refresh_from_db()
    assert (mine.state, other.state) == ("final", "initial")


@pytest.mark.parametrize(
    ("arguments", "served"),
    [
        (("chaos,elsewhere",), {"chaos", "elsewhere"}),
        (("chaos,", "elsewhere", "chaos"), {"chaos", "elsewhere"}),
        (("--exclude", "third"), {"chaos", "elsewhere"}),
        (("--exclude", "chaos,elsewhere"), {"third"}),
        (("--exclude", "chaos", "--exclude", "third"), {"elsewhere"}),
    ],
)
def test_queues_are_named_and_excluded_with_commas(
    workers: Workers, arguments: tuple[str, ...], served: set[str]
) -> None:
    for queue in ("chaos", "elsewhere", "third"):
        quick(queue=queue)

    assert workers.run(*arguments, "--until-idle") == 0

    final = Job.objects.filter(state="final").values_list("queue__name", flat=True)
    assert set(final) == served


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


def test_each_event_is_one_line_of_keys_and_values(workers: Workers) -> None:
    [job] = quick(job_key="order-1")

    workers.run("chaos", "--until-idle")

    lines = [line for line in workers.log.read_text().splitlines() if f"job_id={job.pk} " in line]
    about = f"job_id={job.pk} job_type=quick job_key=order-1 queue=chaos attempt=1"
    assert [line.partition("INFO ")[2] for line in lines] == [
        f"event=job_started {about}",
        f"event=job_succeeded {about}",
    ]


def test_what_fails_is_heard_once_under_djangos_own_logging(workers: Workers) -> None:
    """With no LOGGING in the settings: what is given up is an error, what is tried again is none.

    Each has its traceback, and nobody says it a second time.
    """
    retried, failed = hipq.enqueue("stumbling"), hipq.enqueue("boom", {"message": "no luck"})

    workers.run("--until-idle")

    log = log_of(workers)
    heard = re.findall(r"^\S+ \S+ (WARNING|ERROR) event=(\w+) job_id=(\d+)", log, re.MULTILINE)
    assert sorted(heard) == [
        ("ERROR", "job_failed", f"{failed.pk}"),
        ("WARNING", "attempt_failed", f"{retried.pk}"),
    ]
    assert log.count("event=job_failed") == log.count("\nRuntimeError: no luck\n") == 1
    assert log.count("event=attempt_failed") == log.count("\nOSError: a stumble\n") == 1
    assert log.count("Traceback (most recent call last)") == 2


@pytest.mark.parametrize(
    ("level", "options", "is_told"),
    [
        (None, [], True),
        (None, ["-v", "0"], False),
        ("WARNING", [], False),
        ("WARNING", ["-v", "1"], True),
        ("WARNING", ["--processes", "2"], False),
        ("INFO", ["-v", "0"], False),
    ],
)
def test_the_level_that_the_project_has_set_counts_unless_v_is_given(
    workers: Workers, tmp_path: Path, level: str | None, options: list[str], is_told: bool
) -> None:
    logger = {"hipq_django": {"level": level} if level else {}}
    (tmp_path / "levels.py").write_text(
        f"from tests.settings import *\nLOGGING = {{'version': 1, 'loggers': {logger}}}\n"
    )
    path = f"{workers.environment['PYTHONPATH']}{os.pathsep}{tmp_path}"
    quick()
    hipq.enqueue("boom")

    workers.run("--until-idle", *options, PYTHONPATH=path, DJANGO_SETTINGS_MODULE="levels")

    assert ("event=job_succeeded" in log_of(workers)) is is_told
    assert "event=job_failed" in log_of(workers)


@pytest.mark.usefixtures("no_silence")
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

    assert supervisor.wait(timeout=DEADLINE_SECONDS) == 0
    eventually(lambda: not running.exclude(pk=victim.pk).exists(), "no worker is running")


@pytest.mark.usefixtures("no_silence")
def test_a_child_that_ends_unasked_is_replaced_and_its_jobs_taken_over_at_once(
    workers: Workers,
) -> None:
    """Whatever its exit code; the beats are so slow that nobody could find it silent."""
    supervisor = workers.start("--processes", "2")
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
    assert "event=process_died " in workers.log.read_text()


@pytest.mark.usefixtures("no_silence")
def test_the_job_of_a_killed_child_is_run_again_at_once_and_status_forgets_it(
    workers: Workers, tmp_path: Path
) -> None:
    """Nobody could find it silent: the beats are ten minutes apart."""
    notes, gate = tmp_path / "notes", tmp_path / "gate"
    job = hipq.enqueue("held", {"notes": str(notes), "gate": str(gate)})
    workers.start("held", "--processes", "2")
    eventually(notes.exists, "a child runs it")
    job.refresh_from_db()
    victim = job.worker
    assert victim

    os.kill(int(victim.name.rpartition(":")[2]), signal.SIGKILL)
    gate.touch()

    eventually(lambda: Job.objects.get(pk=job.pk).is_final, "another child has run it")
    job.refresh_from_db()
    assert (job.outcome, job.attempt) == ("succeeded", 2)
    victim.refresh_from_db()
    assert victim.state == Worker.State.LOST
    shown = StringIO()
    call_command("hipq_status", "--json", stdout=shown)
    names = {worker["name"] for worker in json.loads(shown.getvalue())["workers"]}
    assert names
    assert victim.name not in names


@pytest.mark.usefixtures("no_silence")
def test_a_child_that_has_nothing_left_to_do_is_not_replaced(workers: Workers) -> None:
    quick(5)

    assert workers.run("--until-idle", "--processes", "2") == 0

    assert Worker.objects.count() == 2
    assert "event=process_died" not in workers.log.read_text()


def test_a_worker_that_has_run_its_jobs_finishes_what_is_running_and_says_why(
    workers: Workers, tmp_path: Path
) -> None:
    """It puts nothing back that has started, and leaves the rest to others."""
    notes, gate = tmp_path / "notes", tmp_path / "gate"
    data = {"notes": str(notes), "gate": str(gate)}
    jobs = [hipq.enqueue("held", data) for _ in range(3)]
    worker = workers.start("held", "--threads", "2", "--max-jobs", "2")
    eventually(lambda: ": it has started 2 jobs" in log_of(workers), "it has had enough")
    assert worker.poll() is None
    gate.touch()

    assert worker.wait(timeout=60) == 0

    attempts = Job.objects.filter(pk__in=[job.pk for job in jobs]).values_list("state", "attempt")
    assert sorted(attempts) == [("final", 1), ("final", 1), ("initial", 0)]


@pytest.mark.usefixtures("no_silence")
def test_a_child_that_has_run_its_jobs_is_replaced_at_once(workers: Workers) -> None:
    quick(60)

    assert workers.run("chaos", "--until-idle", "--processes", "2", "--max-jobs", "10") == 0

    assert set(Job.objects.values_list("outcome", flat=True)) == {"succeeded"}
    assert not Attempt.objects.exists()
    assert Worker.objects.count() > 2
    assert set(Worker.objects.values_list("state", flat=True)) == {"stopped"}
    assert "event=process_died" not in log_of(workers)


@pytest.mark.usefixtures("no_silence")
def test_a_child_that_is_recycled_is_replaced_while_its_handler_goes_on(
    workers: Workers, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    data = {"notes": str(tmp_path / "notes"), "gate": str(gate)}
    held = [hipq.enqueue("held", data) for _ in range(2)]
    command = workers.start("--processes", "2", "--threads", "1", "--max-jobs", "1")
    eventually(lambda: log_of(workers).count("event=worker_recycled") == 2, "both have enough")

    others = quick(3)

    eventually(lambda: outcomes_of(others) == {"succeeded"}, "new ones have run the others")
    assert outcomes_of(held) == {"NONE"}
    gate.touch()
    eventually(lambda: outcomes_of(held) == {"succeeded"}, "they have ended")
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
    assert re.search(rf"event=handlers_left .* jobs=\[{job.pk}\]: ", log_of(workers))
    assert "event=jobs_put_back" not in log_of(workers)


def test_a_worker_that_has_grown_runs_a_job_and_makes_way(workers: Workers) -> None:
    """Any worker has more than a megabyte."""
    worker = workers.start("chaos", "--max-memory", "1")
    eventually(lambda: Worker.objects.filter(state="running").exists(), "it runs, and stays")
    assert worker.poll() is None
    [job] = quick()

    assert worker.wait(timeout=60) == 0

    job.refresh_from_db()
    assert job.outcome == "succeeded"
    assert re.search(r"event=worker_recycled .*: it has \d\d+ MB of memory; ", log_of(workers))


def outcomes_of(jobs: list[Job]) -> set[str]:
    """Return the outcomes of jobs as they are stored."""
    rows = Job.objects.filter(pk__in=[job.pk for job in jobs])
    return set(rows.values_list("outcome", flat=True))


def log_of(workers: Workers) -> str:
    """Return what the workers have logged."""
    return workers.log.read_text()


@contextmanager
def hangups(handled: signal.Handlers) -> Iterator[None]:
    """Let what is started in the block take SIGHUP so, whatever these tests were started by."""
    before = signal.signal(signal.SIGHUP, handled)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_hangup_lets_a_worker_finish_what_is_running(
    workers: Workers, tmp_path: Path, processes: str
) -> None:
    """It comes from a terminal that closes, to all processes of the group.

    Often twice: from the shell, which passes it on, and from the system.
    """
    notes, gate = tmp_path / "notes", tmp_path / "gate"
    job = hipq.enqueue("held", {"notes": str(notes), "gate": str(gate)})
    with hangups(signal.SIG_DFL):
        worker = workers.execute("hipq_worker", "held", "--processes", processes)
    eventually(notes.exists, "the handler runs")

    os.killpg(worker.pid, signal.SIGHUP)
    eventually(lambda: "event=told_to_stop" in log_of(workers), "it was told")
    os.killpg(worker.pid, signal.SIGHUP)
    last = Worker.objects.latest("heartbeat_time").heartbeat_time
    live = Worker.objects.filter(state__in=Worker.LIVE)
    eventually(live.filter(heartbeat_time__gt=last).exists, "it has lived on")
    gate.touch()

    assert worker.wait(timeout=60) == 0
    job.refresh_from_db()
    assert (job.outcome, job.attempt) == ("succeeded", 1)
    assert "event=jobs_put_back" not in log_of(workers)


@pytest.mark.parametrize("processes", ["1", "2"])
@pytest.mark.usefixtures("no_silence")
def test_a_signal_after_a_hangup_counts_as_the_second(
    workers: Workers, tmp_path: Path, processes: str
) -> None:
    notes, gate = tmp_path / "notes", tmp_path / "gate"
    job = hipq.enqueue("held", {"notes": str(notes), "gate": str(gate)})
    with hangups(signal.SIG_DFL):
        worker = workers.execute("hipq_worker", "held", "--processes", processes)
    eventually(notes.exists, "the handler runs")

    worker.send_signal(signal.SIGHUP)
    eventually(lambda: "event=told_to_stop" in log_of(workers), "it was told")
    time.sleep(2 * TOGETHER_SECONDS)  # nothing happens then that could be awaited
    worker.send_signal(signal.SIGTERM)

    assert worker.wait(timeout=60) == 0
    assert "event=jobs_put_back" in log_of(workers)
    job.refresh_from_db()
    assert job.state == "retry"


def test_a_hangup_is_ignored_by_a_worker_that_was_started_so(workers: Workers) -> None:
    """As `nohup` does."""
    with hangups(signal.SIG_IGN):
        worker = workers.execute("hipq_worker", "chaos")
    eventually(lambda: Worker.objects.filter(state="running").exists(), "it runs")

    worker.send_signal(signal.SIGHUP)
    [job] = quick()
    eventually(lambda: Job.objects.get(pk=job.pk).is_final, "it goes on")

    assert worker.poll() is None
    assert "event=told_to_stop" not in log_of(workers)


def test_children_of_a_killed_supervisor_stop_by_themselves(workers: Workers) -> None:
    supervisor = workers.start("chaos", "--processes", "2")
    live = Worker.objects.filter(state__in=Worker.LIVE)
    eventually(lambda: live.count() == 2, "two workers have registered")

    supervisor.kill()

    eventually(lambda: not live.exists(), "both have signed off")


@pytest.mark.slow
def test_a_child_that_hangs_while_it_starts_ends_at_the_second_signal(
    workers: Workers, tmp_path: Path
) -> None:
    (tmp_path / "hanging_settings.py").write_text(
        "import multiprocessing, pathlib, time\n"
        "if multiprocessing.parent_process():\n"
        f"    pathlib.Path({str(tmp_path / 'hangs')!r}).touch()\n"
        "    time.sleep(3600)\n"
        "from tests.settings import *\n"
    )
    path = f"{workers.environment['PYTHONPATH']}{os.pathsep}{tmp_path}"
    supervisor = workers.start(
        "--processes", "2", PYTHONPATH=path, DJANGO_SETTINGS_MODULE="hanging_settings"
    )
    eventually((tmp_path / "hangs").exists, "a child hangs")

    for number in (signal.SIGTERM, signal.SIGINT):  # two of a kind might arrive as one
        supervisor.send_signal(number)

    assert supervisor.wait(timeout=60) == 0


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("held,chaoss",), "unknown queue 'chaoss', did you mean 'chaos'?"),
        (("--exclude", "chaoss"), "unknown queue 'chaoss', did you mean 'chaos'?"),
        (("chaos;held",), "unknown queue 'chaos;held'"),
        (("",), "'' names no queue; give names, such as bank,exports."),
        (("chaos", ","), "',' names no queue; give names, such as bank,exports."),
        (("--exclude", ""), "'' names no queue; give names, such as bank,exports."),
        (("chaos", "--exclude", "held"), "--exclude: give either the queues to serve or the"),
    ],
)
@pytest.mark.django_db
def test_queues_that_cannot_be_served_are_refused(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(CommandError, match=f"^{re.escape(message)}"):
        call_command("hipq_worker", *arguments)


def test_an_unknown_instance_is_named(workers: Workers) -> None:
    line = refused(workers, "--instance", "defalt")

    assert line.startswith("CommandError: HIPQ has no instance 'defalt', did you mean 'default'?")


def test_a_database_without_the_tables_says_migrate(workers: Workers, tmp_path: Path) -> None:
    line = refused(workers, DATABASE_URL=f"sqlite:///{tmp_path}/empty")

    assert line == (
        "CommandError: database 'default' lacks migration hipq.0001_initial: run manage.py migrate."
    )


def refused_after_migrate(workers: Workers, folder: Path, *arguments: str) -> str:
    """Return what a worker says at its start in a new database after `migrate` with arguments."""
    database = {"DATABASE_URL": f"sqlite:///{folder}/new"}
    subprocess.run(
        [sys.executable, "-m", "django", "migrate", *arguments],
        env=workers.environment | database,
        capture_output=True,
        check=True,
    )
    return refused(workers, **database)


def test_a_database_without_the_tables_of_flows_says_migrate(
    workers: Workers, tmp_path: Path
) -> None:
    line = refused_after_migrate(workers, tmp_path, "hipq")

    assert line == (
        "CommandError: database 'default' lacks migration hipq_flow.0001_initial: run manage.py "
        "migrate."
    )


def test_tables_that_were_recorded_and_never_made_are_said(
    workers: Workers, tmp_path: Path
) -> None:
    """As a router whose `allow_migrate` refuses them leaves it; `--fake` leaves the same."""
    line = refused_after_migrate(workers, tmp_path, "hipq_flow", "--fake")

    assert line == (
        "CommandError: database 'default' has a record of the migrations of hipq_django, but not "
        "its tables. If a router of DATABASE_ROUTERS keeps them out, let its allow_migrate allow "
        "the app 'hipq' there. Then run manage.py migrate hipq zero --fake and manage.py migrate."
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
        (("--drain-seconds", "-1"), "--drain-seconds -1.0: give 0 to 86,400 seconds."),
        (("--max-jobs", "0"), "--max-jobs 0: give a number from 1 to 1,000,000,000."),
        (("--max-memory", "0"), "--max-memory 0: give 1 to 1,000,000 megabytes."),
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
