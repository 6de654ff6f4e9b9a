"""A database that does not answer: workers notice, come back, and always end when told to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import connection
from django.db.models import F

import hipq_django as hipq
from hipq_django.conf.instances import LOST_AFTER_BEATS
from hipq_django.database import clock
from hipq_django.models import Attempt, Job, Worker
from tests.plugin import renamed
from tests.processes.conftest import Workers, begun, eventually, hold
from tests.processes.forked import CONNECT_MIN, HEARTBEAT_MIN, LAST_RESORT
from tests.proxy import Proxy, proxy

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.processes,
    pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite is no peer"),
]

"""Three of the beats of these tests."""


@pytest.fixture
def wire(workers: Workers) -> Iterator[Proxy]:
    """What lies between the workers and their database."""
    connection.ensure_connection()
    info = connection.connection.info
    target = f"{info.host}/.s.PGSQL.{info.port}" if info.host.startswith("/") else None
    with proxy(target or (info.host, info.port)) as wire:
        url = f"postgres://{info.user}:{info.password}@127.0.0.1:{wire.port}/{info.dbname}"
        workers.environment["DATABASE_URL"] = renamed(url, info.dbname)
        yield wire


def is_final(job: Job) -> bool:
    return Job.objects.get(pk=job.pk).is_final


def has_beaten() -> bool:
    return Worker.objects.filter(heartbeat_time__gt=F("create_time")).exists()


def await_silence(silence: timedelta) -> None:
    """Wait until nobody could beat for the time after which a worker is lost."""

    def are_silent() -> bool:
        beats = Worker.objects.values_list("heartbeat_time", flat=True)
        return clock.now("default") - max(beats) > silence

    eventually(are_silent, "no worker has beaten for long")


def log_of(workers: Workers) -> str:
    return workers.log.read_text()


# Connections that go dead without a word


def test_a_worker_whose_connections_are_dead_opens_others(
    workers: Workers, wire: Proxy, tmp_path: Path
) -> None:
    """As behind a firewall that forgot them; nothing closes them, and new ones would work."""
    workers.environment["HIPQ_TEST_CONSTANTS"] = json.dumps({HEARTBEAT_MIN: 1.5})
    running, notes, gate = hold(tmp_path)
    worker = workers.start("held", "chaos")
    eventually(lambda: begun(notes) == 1, "the handler runs")
    eventually(has_beaten, "its heart beats")

    wire.fall_silent()
    waiting = hipq.enqueue("quick", {"number": 1})
    eventually(lambda: is_final(waiting), "the worker is back")
    gate.touch()
    eventually(lambda: is_final(running), "its result is written")

    assert worker.poll() is None
    assert "event=database_silent" in log_of(workers)
    assert "event=database_back" in log_of(workers)
    running.refresh_from_db()
    assert (running.outcome, running.attempt) == ("succeeded", 1)


# An outage for all


def test_an_outage_is_nobodys_death(workers: Workers, wire: Proxy, tmp_path: Path) -> None:
    """The first worker that is back finds the others silent, because none could beat.

    The beats are slower here, so that a busy machine makes nobody silent before or after that.
    """
    beat = timedelta(seconds=0.75)
    workers.environment["HIPQ_TEST_HEARTBEAT_SECONDS"] = f"{beat.total_seconds():g}"
    held = [hold(tmp_path, name) for name in ("a", "b", "c")]
    running = [workers.start("held", "--threads", "1") for _ in held]
    eventually(lambda: all(begun(notes) for _, notes, _ in held), "all handlers run")

    wire.new = "refuse"
    wire.cut()
    ended, _, gate = held[0]
    gate.touch()  # a result that can only be written when the outage is over
    await_silence(LOST_AFTER_BEATS * beat)
    wire.new = "pass"
    eventually(lambda: is_final(ended), "the result of a handler that ended meanwhile is there")
    for _, _, gate in held:
        gate.touch()
    eventually(lambda: not Job.objects.live().exists(), "all jobs are final")

    assert set(Job.objects.values_list("outcome", "attempt")) == {("succeeded", 1)}
    assert not Attempt.objects.exists()
    assert set(Worker.objects.values_list("state", flat=True)) == {"running"}
    assert [process.poll() for process in running] == [None] * len(held)


# The end


@pytest.mark.nightly
def test_a_worker_that_is_told_to_stop_and_cut_off_ends_and_says_what_is_lost(
    workers: Workers, wire: Proxy, tmp_path: Path
) -> None:
    workers.environment["HIPQ_TEST_CONSTANTS"] = json.dumps({CONNECT_MIN: 2, HEARTBEAT_MIN: 1.5})
    job, notes, gate = hold(tmp_path)
    worker = workers.start("held")
    eventually(lambda: begun(notes) == 1, "the handler runs")

    wire.new = "swallow"
    wire.fall_silent()
    worker.terminate()
    eventually(lambda: log_of(workers).count("event=back_off") > 1, "it has tried again")
    gate.touch()

    assert worker.wait(60) == 0
    assert "event=database_back" not in log_of(workers)
    assert "event=worker_cut_off" in log_of(workers)
    assert f"jobs=[{job.pk}]" in log_of(workers)


def test_a_worker_that_is_told_to_stop_just_after_an_outage_writes_its_results(
    workers: Workers, wire: Proxy, tmp_path: Path
) -> None:
    """It waits for its next try, and the database was away for longer than three beats."""
    job, notes, gate = hold(tmp_path)
    worker = workers.start("held")
    eventually(lambda: begun(notes) == 1, "the handler runs")

    wire.new = "refuse"
    wire.cut()
    gate.touch()
    long = re.compile(r"event=back_off .* seconds=[2-5]")
    eventually(lambda: long.search(log_of(workers)), "its next try comes late")
    wire.new = "pass"
    worker.terminate()

    assert worker.wait(60) == 0
    assert "event=worker_cut_off" not in log_of(workers)
    job.refresh_from_db()
    assert (job.outcome, job.attempt) == ("succeeded", 1)


def test_a_second_signal_ends_a_worker_whatever_it_waits_for(
    workers: Workers, wire: Proxy, tmp_path: Path
) -> None:
    """Its handler never ends, and its database does not answer."""
    _, notes, _ = hold(tmp_path)
    constants = json.dumps({LAST_RESORT: 1})
    slow = {"HIPQ_TEST_HEARTBEAT_SECONDS": "600", "HIPQ_TEST_CONSTANTS": constants}
    worker = workers.start("held", **slow)
    eventually(lambda: begun(notes) == 1, "the handler runs")

    wire.new = "swallow"
    wire.fall_silent()

    def is_told_again() -> bool:
        worker.terminate()
        return worker.poll() is not None

    eventually(is_told_again, "it has ended", 60)

    assert worker.returncode == 1
    assert "event=forced_exit" in log_of(workers)


def test_a_worker_that_is_told_to_stop_before_it_has_begun_ends(
    workers: Workers, wire: Proxy
) -> None:
    """In order: as process 1 of a container it would hear of no signal that it does not handle."""
    wire.new = "swallow"
    before = wire.accepted
    worker = workers.start("held")
    eventually(lambda: wire.accepted > before, "it waits for the database")

    worker.terminate()

    assert worker.wait(60) == 0
    assert "cannot be reached" not in log_of(workers)
