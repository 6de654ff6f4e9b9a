"""Workers that are killed, stopped and cut off: no job is lost, none is settled twice."""

import json
import os
import re
import signal
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import OperationalError, connection, transaction

import hipq_django as hipq
from hipq_django.models import Attempt, Job, Worker
from tests.processes.conftest import (
    DEADLINE_SECONDS,
    Process,
    Workers,
    begun,
    eventually,
    hold,
    nightly,
)

pytestmark = pytest.mark.processes

"""Not those of autovacuum, which an owner may not end."""


def test_a_killed_workers_job_is_run_by_another(workers: Workers, tmp_path: Path) -> None:
    """T18: recovered by the heartbeat, long before the timeout."""
    job, notes, gate = hold(tmp_path)
    first = workers.start("held")
    eventually(lambda: begun(notes) == 1, "the handler runs")

    first.kill()
    gate.touch()
    workers.start("held")

    eventually(lambda: Job.objects.get(pk=job.pk).is_final, "the job is final")
    job.refresh_from_db()
    assert (job.outcome, job.attempt) == ("succeeded", 2)
    assert [a.kind for a in job.attempts.all()] == [Attempt.Kind.WORKER_LOST]


@pytest.mark.nightly
def test_a_job_that_kills_its_workers_is_given_up_and_the_innocent_run(
    workers: Workers, tmp_path: Path
) -> None:
    """Three losses end a job; what was claimed beside it, and had not started, is not counted."""
    notes = str(tmp_path / "notes")
    killer = hipq.enqueue("killer", {"notes": notes}, priority=1)
    innocent = [hipq.enqueue("once", {"notes": notes}, priority=2) for _ in range(20)]

    def tend() -> bool:
        if workers.started[-1].poll() is not None:
            workers.start("held", "--threads", "1")
        return not Job.objects.live().exists()

    workers.start("held", "--threads", "1")
    eventually(tend, "every job is final")

    killer.refresh_from_db()
    assert (killer.outcome, killer.attempts.count()) == ("failed", 3)
    assert "WorkerLost" in killer.error
    outcomes = Job.objects.filter(pk__in=[job.pk for job in innocent]).values_list(
        "outcome", flat=True
    )
    assert set(outcomes) == {"succeeded"}


@pytest.mark.usefixtures("no_silence", "no_pause")
def test_a_child_that_dies_is_replaced_and_its_job_taken_over_at_once(
    workers: Workers, tmp_path: Path
) -> None:
    """Whatever its exit code; the beats are so slow that nobody could find it silent."""
    job, notes, gate = hold(tmp_path)
    supervisor = workers.start("--processes", "2")
    eventually(lambda: begun(notes) == 1, "a child runs it")
    victim = Worker.objects.get(jobs=job).name
    gate.touch()

    os.kill(int(victim.rpartition(":")[2]), signal.SIGKILL)
    eventually(lambda: Job.objects.get(pk=job.pk).is_final, "another child has run it")
    exiting = hipq.enqueue("exiting")
    eventually(lambda: Job.objects.get(pk=exiting.pk).is_final, "its loss is noticed")
    eventually(lambda: len(names_in_status()) == 2, "both are replaced")
    assert victim not in names_in_status()
    supervisor.terminate()

    assert supervisor.wait(timeout=DEADLINE_SECONDS) == 0
    assert set(Job.objects.values_list("outcome", "attempt")) == {("succeeded", 2), ("failed", 1)}
    assert Job.objects.get(pk=exiting.pk).error.startswith("WorkerLost: ")
    states = Worker.objects.values_list("state", flat=True)
    assert sorted(states) == ["lost", "lost", "stopped", "stopped"]
    assert workers.log.read_text().count("event=process_died ") == 2


def names_in_status() -> set[str]:
    """Return the names of the workers that `hipq_status` knows."""
    out = StringIO()
    call_command("hipq_status", "--json", stdout=out)
    return {worker["name"] for worker in json.loads(out.getvalue())["workers"]}


def stop_between_writes(process: Process, job: Job) -> None:
    """Stop it while it writes nothing.

    On SQLite it would stop every other writer too, on PostgreSQL those of the same rows.
    """

    def stopped_without_a_lock() -> bool:
        process.send_signal(signal.SIGSTOP)
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                if connection.vendor == "sqlite":
                    cursor.execute("PRAGMA busy_timeout = 0")
                cursor.execute("UPDATE hipq_queue SET paused = paused WHERE id = 0")
                if connection.vendor == "postgresql":
                    for rows in (Job.objects.filter(pk=job.pk), Worker.objects.all()):
                        list(rows.select_for_update(nowait=True))
        except OperationalError:
            process.send_signal(signal.SIGCONT)
            return False
        return True

    eventually(stopped_without_a_lock, "the process is between two writes")
    connection.close()  # with its short timeout


def test_a_stopped_worker_that_wakes_up_drops_what_others_took_over(
    workers: Workers, tmp_path: Path
) -> None:
    """SIGSTOP, as a machine that sleeps: the late result does not overwrite the other one."""
    job, notes, gate = hold(tmp_path)
    sleeper = workers.start("held")
    eventually(lambda: begun(notes) == 1, "the handler runs")
    stop_between_writes(sleeper, job)
    workers.start("held")
    eventually(lambda: begun(notes) == 2, "another worker runs it")

    sleeper.send_signal(signal.SIGCONT)
    eventually(
        lambda: Worker.objects.filter(state=Worker.State.RUNNING).count() == 2,
        "the first one is back under a new row",
    )
    gate.touch()

    eventually(lambda: Job.objects.get(pk=job.pk).is_final, "the job is final")
    job.refresh_from_db()
    assert (job.attempt, job.attempts.count()) == (2, 1)
    assert sleeper.poll() is None


def test_sigterm_finishes_what_is_running_and_claims_nothing_more(
    workers: Workers, tmp_path: Path
) -> None:
    """The running job succeeds in its first attempt, the waiting one stays as it was.

    The worker ends with its last handler, however long the drain may take.
    """
    notes, gate = tmp_path / "notes", tmp_path / "gate"
    data = {"notes": str(notes), "gate": str(gate)}
    running, waiting = hipq.enqueue("held", data), hipq.enqueue("held", data)
    worker = workers.start("held", "--threads", "1", "--drain-seconds", "3600")
    eventually(lambda: begun(notes) == 1, "the handler runs")

    worker.terminate()
    eventually(
        lambda: Worker.objects.filter(state=Worker.State.STOPPING).exists(), "it is stopping"
    )
    gate.touch()

    assert worker.wait(timeout=DEADLINE_SECONDS) == 0
    running.refresh_from_db()
    waiting.refresh_from_db()
    assert (running.outcome, running.attempt) == ("succeeded", 1)
    assert (waiting.state, waiting.attempt) == ("initial", 0)
    assert Worker.objects.get().state == Worker.State.STOPPED


def test_a_second_sigterm_lets_go_of_running_jobs(workers: Workers, tmp_path: Path) -> None:
    """The job goes back at once, without a counted failure, and another worker runs it."""
    job, notes, gate = hold(tmp_path)
    worker = workers.start("held")
    eventually(lambda: begun(notes) == 1, "the handler runs")

    worker.terminate()
    eventually(
        lambda: Worker.objects.filter(state=Worker.State.STOPPING).exists(), "it is stopping"
    )
    worker.terminate()

    assert worker.wait(timeout=DEADLINE_SECONDS) == 0
    job.refresh_from_db()
    assert (job.state, job.attempts.count()) == ("retry", 0)
    gate.touch()
    assert workers.run("held", "--until-idle") == 0
    job.refresh_from_db()
    assert (job.outcome, job.attempt) == ("succeeded", 2)


@pytest.mark.parametrize("number", [signal.SIGINT, nightly(signal.SIGTERM)])
@pytest.mark.usefixtures("no_silence")
def test_a_signal_for_the_whole_process_group_counts_once(
    workers: Workers, tmp_path: Path, number: signal.Signals
) -> None:
    """As Ctrl-C in a terminal: the supervisor and its children get it; the second is the second."""
    notes, gate = tmp_path / "notes", tmp_path / "gate"
    ending, hanging = (
        hipq.enqueue("held", {"notes": str(notes), "gate": name})
        for name in (str(gate), "/no/gate")
    )
    supervisor = workers.start("held", "--threads", "1", "--processes", "2")
    eventually(lambda: begun(notes) == 2, "each child runs a handler")
    stopping = Worker.objects.filter(state=Worker.State.STOPPING)

    os.killpg(supervisor.pid, number)
    eventually(lambda: stopping.count() == 2, "both children are stopping")
    gate.touch()
    eventually(lambda: Job.objects.get(pk=ending.pk).is_final, "one handler has ended")
    eventually(lambda: stopping.count() == 1, "its child has stopped")
    assert supervisor.poll() is None
    os.killpg(supervisor.pid, number)

    assert supervisor.wait(timeout=60) == 0
    ending.refresh_from_db()
    hanging.refresh_from_db()
    assert (ending.outcome, ending.attempt) == ("succeeded", 1)
    assert (hanging.state, hanging.attempts.count()) == ("retry", 0)
    assert not re.search("event=process_died|Traceback", workers.log.read_text())


@pytest.mark.parametrize("processes", [nightly("1"), "2"])
@pytest.mark.usefixtures("no_silence")
def test_what_has_not_ended_when_the_drain_is_over_is_put_back(
    workers: Workers, tmp_path: Path, processes: str
) -> None:
    job, notes, gate = hold(tmp_path)
    worker = workers.start("held", "--drain-seconds", "0.5", "--processes", processes)
    eventually(lambda: begun(notes) == 1, "the handler runs")

    worker.terminate()

    assert worker.wait(timeout=60) == 0
    job.refresh_from_db()
    assert (job.state, job.attempts.count()) == ("retry", 0)
    assert f"jobs=[{job.pk}]" in workers.log.read_text()
    gate.touch()
    assert workers.run("held", "--until-idle") == 0
    job.refresh_from_db()
    assert (job.outcome, job.attempt) == ("succeeded", 2)


def test_processes_that_a_handler_forks_and_ends_do_not_end_its_worker(
    workers: Workers, tmp_path: Path
) -> None:
    """They have the signals of their own."""
    job, notes, gate = hold(tmp_path)
    forking = hipq.enqueue("forks")
    worker = workers.start("held", "forks", "--threads", "4", "--drain-seconds", "3600")

    eventually(lambda: Job.objects.get(pk=forking.pk).is_final, "the other one has ended", 60)
    eventually(lambda: begun(notes) == 1, "the handler runs")

    forking.refresh_from_db()
    assert forking.result == "left"
    assert "event=told_to_stop" not in workers.log.read_text()
    gate.touch()
    eventually(lambda: Job.objects.get(pk=job.pk).is_final, "it has ended")
    worker.terminate()
    assert worker.wait(timeout=60) == 0


def test_a_process_that_a_handler_forks_never_goes_on_as_a_worker(
    workers: Workers, tmp_path: Path
) -> None:
    """It ends where the handler ends, and executes none of the jobs that it has a copy of."""
    forking = [hipq.enqueue("forks_by_hand", {"code": code}) for code in (0, 7)]
    notes = tmp_path / "notes"
    hipq.enqueue_many(hipq.NewJob("once", {"notes": str(notes)}, queue="forks") for _ in range(50))

    assert workers.run("forks", "--threads", "1", "--until-idle") == 0

    assert [Job.objects.get(pk=job.pk).result for job in forking] == [0, 7]
    assert begun(notes) == 50
