"""The operating system's signals, as a terminal, a service manager and the kernel send them."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest

import hipq_django as hipq
from hipq_django.models import Job, Worker
from tests.processes.conftest import Workers, eventually, hold, nightly
from tests.processes.forked import END

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("processes", ["1", nightly("2")])
def test_a_hangup_lets_a_worker_finish_what_is_running(
    workers: Workers, tmp_path: Path, processes: str
) -> None:
    """It comes from a terminal that closes, to all processes of the group."""
    job, notes, gate = hold(tmp_path)
    worker = workers.start("held", "--processes", processes)
    eventually(notes.exists, "the handler runs")

    os.killpg(worker.pid, signal.SIGHUP)
    eventually(lambda: "event=told_to_stop" in workers.log.read_text(), "it was told")
    last = Worker.objects.latest("heartbeat_time").heartbeat_time
    live = Worker.objects.filter(state__in=Worker.LIVE)
    eventually(live.filter(heartbeat_time__gt=last).exists, "it has lived on")
    gate.touch()

    assert worker.wait(timeout=60) == 0
    job.refresh_from_db()
    assert (job.outcome, job.attempt) == ("succeeded", 1)
    assert "event=jobs_put_back" not in workers.log.read_text()


@pytest.mark.parametrize(
    ("left", "threads"), [("thread", "mine_0"), ("function", "none, but a function of atexit")]
)
def test_what_handlers_leave_behind_does_not_keep_a_worker_from_its_end(
    workers: Workers, tmp_path: Path, left: str, threads: str
) -> None:
    """The functions of `atexit` are called, also those behind which a thread would wait."""
    workers.environment["HIPQ_TEST_CONSTANTS"] = json.dumps({END: 0.2})
    job = hipq.enqueue("leaving", {"left": left, "notes": str(tmp_path / "notes")})
    worker = workers.start("held")
    eventually(lambda: Job.objects.get(pk=job.pk).is_final, "it has left them")

    worker.terminate()

    assert worker.wait(timeout=60) == 0
    assert (tmp_path / "notes").exists()
    log = workers.log.read_text()
    assert re.search(rf"event=threads_left .*threads=.*{threads}.* msg=.it ends without them", log)


def test_a_hangup_is_ignored_by_a_worker_that_was_started_so(workers: Workers) -> None:
    """As `nohup` does."""
    worker = workers.start("chaos", HIPQ_TEST_NOHUP="yes")
    eventually(lambda: Worker.objects.filter(state="running").exists(), "it runs")

    worker.send_signal(signal.SIGHUP)
    job = hipq.enqueue("quick", {"number": 1})
    eventually(lambda: Job.objects.get(pk=job.pk).is_final, "it goes on")

    assert worker.poll() is None
    assert "event=told_to_stop" not in workers.log.read_text()


def test_children_of_a_killed_supervisor_stop_by_themselves(workers: Workers) -> None:
    supervisor = workers.start("chaos", "--processes", "2")
    live = Worker.objects.filter(state__in=Worker.LIVE)
    eventually(lambda: live.count() == 2, "two workers have registered")

    supervisor.kill()

    eventually(lambda: not live.exists(), "both have signed off")
