"""One clock: the database's."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.db import connection

import hipq_django as hipq
from hipq_django.conf.instances import get_instance
from hipq_django.database import clock
from hipq_django.maintenance import recovery
from hipq_django.models import Job, Worker
from tests.factories import WorkerFactory
from tests.hand_worker import HandWorker
from tests.passing import Passing

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]

HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def as_in_production(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The clock does not follow this process, as it does for tests that freeze the time."""
    monkeypatch.setattr(clock, "_measured", {})
    monkeypatch.setattr(clock, "_offsets", {})
    clock.follow_process(follows=False)
    yield
    clock.follow_process()


@pytest.fixture
def stepped() -> Iterator[time_machine.Traveller]:
    """This machine's clock is put forward by an hour after the database's was measured."""
    clock.measure("default")
    with time_machine.travel(datetime.now(UTC) + HOUR) as traveller:
        yield traveller


@pytest.fixture
def time_passes(monkeypatch: pytest.MonkeyPatch) -> Passing:
    return Passing(monkeypatch)


def database_time() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        moment: datetime = cursor.fetchone()[0]
    return moment


def is_now(moment: datetime, real: datetime) -> bool:
    return abs(moment - real) < timedelta(seconds=5)


# What is read


def test_reading_the_clock_costs_no_query(django_assert_num_queries: Any) -> None:
    clock.measure("default")

    with django_assert_num_queries(0):
        assert clock.now("default").tzinfo is UTC


@pytest.mark.parametrize("step", [HOUR, -HOUR])
def test_no_step_of_this_machines_clock_is_believed_between_two_measurements(
    step: timedelta,
) -> None:
    clock.measure("default")
    before = datetime.now(UTC)

    with time_machine.travel(before + step):
        assert is_now(clock.now("default"), before)


def test_a_process_whose_connection_persists_measures_again(
    time_passes: Passing, django_assert_num_queries: Any
) -> None:
    """At most once a minute, and where it opens no connection."""
    clock.measure("default")
    queries = int(connection.vendor == "postgresql")

    time_passes.seconds += 61

    with django_assert_num_queries(queries):
        clock.now("default")
        clock.now("default")


@pytest.mark.postgres
def test_a_step_of_the_servers_clock_is_followed_by_the_next_measurement(
    monkeypatch: pytest.MonkeyPatch, time_passes: Passing
) -> None:
    """As seen by a process that believes what the server said before the step."""
    clock.measure("default")
    known = clock._measured["default"]
    monkeypatch.setitem(clock._measured, "default", known._replace(zero=known.zero - HOUR))
    before = clock.now("default")

    time_passes.seconds += 61

    assert is_now(before, database_time() - HOUR)
    assert is_now(clock.now("default"), database_time())


@pytest.mark.postgres
def test_a_slow_answer_is_not_taken_for_another_time() -> None:
    """Its middle would say that the database's clock is slow, and jobs would start late."""

    def answer_late(execute: Any, *statement: Any) -> Any:
        result = execute(*statement)
        time.sleep(0.05)
        return result

    with connection.execute_wrapper(answer_late):
        assert abs(clock.measure("default")) < timedelta(milliseconds=1)


@pytest.mark.postgres
def test_a_clock_that_is_far_off_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.WARNING, logger="hipq_django"),
        time_machine.travel(datetime.now(UTC) + HOUR),
    ):
        clock.measure("default")

    said = "event=clock_offset database=default offset_seconds=-3"
    assert any(said in message for message in caplog.messages)


# What it decides


@pytest.mark.usefixtures("stepped")
def test_a_step_starts_no_job_early_and_puts_none_off() -> None:
    hipq.enqueue("echo", scheduled_run_time=datetime.now(UTC) - HOUR / 2)
    for_now = hipq.enqueue("echo")

    assert HandWorker().run_pass() == [for_now]


@pytest.mark.usefixtures("stepped")
def test_a_step_times_out_no_job_and_loses_no_living_worker() -> None:
    job = hipq.enqueue("echo", timeout=60)
    HandWorker().run_pass()

    assert recovery.time_out_overdue(get_instance()) == 0
    assert recovery.recover_lost(get_instance()) == 0

    job.refresh_from_db()
    assert (job.state, Worker.objects.get().state) == ("running", "running")


@pytest.mark.postgres
@pytest.mark.parametrize("verb", [recovery.recover_lost, recovery.time_out_overdue])
def test_a_process_whose_idea_of_the_time_is_wrong_gives_up_nobody(
    verb: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it believes: it is the database that compares, with its own clock."""
    worker = WorkerFactory.create()
    job = hipq.enqueue("echo", timeout=3_600)
    HandWorker().run_pass()
    known = clock._measured["default"]
    monkeypatch.setitem(clock._measured, "default", known._replace(zero=known.zero + 2 * HOUR))

    assert verb(get_instance()) == 0

    assert Worker.objects.get(pk=worker.pk).state == "running"
    assert Job.objects.get(pk=job.pk).state == "running"
