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
from hipq_django import clock, recovery
from hipq_django.conf import get_instance
from hipq_django.models import Worker
from hipq_django.testing import run_due_jobs
from tests.factories import WorkerFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def wrong_clock() -> Iterator[None]:
    """This process's clock is an hour fast, and the database's is measured against it."""
    try:
        with time_machine.travel(datetime.now(UTC) + timedelta(hours=1)):
            clock.measure("default")
            yield
    finally:
        clock.measure("default")


def database_time() -> datetime:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        moment: datetime = cursor.fetchone()[0]
    return moment


def test_the_time_is_aware_and_in_utc() -> None:
    assert clock.now("default").tzinfo is UTC


def test_reading_the_clock_costs_no_query(django_assert_num_queries: object) -> None:
    with django_assert_num_queries(0):  # type: ignore[operator]
        clock.now("default")


@pytest.mark.postgres
@pytest.mark.usefixtures("wrong_clock")
def test_a_process_with_a_wrong_clock_has_the_databases_time() -> None:
    assert abs(clock.now("default") - database_time()) < timedelta(seconds=1)


@pytest.mark.postgres
@pytest.mark.usefixtures("wrong_clock")
def test_a_wrong_clock_does_not_run_jobs_early() -> None:
    later = database_time() + timedelta(minutes=30)
    hipq.enqueue("echo", scheduled_run_time=later)

    assert run_due_jobs() == 0


@pytest.mark.postgres
@pytest.mark.usefixtures("wrong_clock")
def test_a_wrong_clock_loses_no_living_worker() -> None:
    WorkerFactory.create(heartbeat_time=database_time())

    recovery.recover_lost(get_instance())

    assert Worker.objects.get().state == "running"


@pytest.mark.postgres
def test_a_slow_answer_is_not_taken_for_another_time() -> None:
    """Its middle would say that the database's clock is slow, and jobs would start late."""

    def answer_late(execute: Any, *statement: Any) -> Any:
        result = execute(*statement)
        time.sleep(0.05)
        return result

    with connection.execute_wrapper(answer_late):
        assert clock.measure("default") == timedelta()


@pytest.mark.postgres
def test_a_clock_that_is_far_off_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="hipq_django"):
        try:
            with time_machine.travel(datetime.now(UTC) + timedelta(hours=1)):
                clock.measure("default")
        finally:
            clock.measure("default")

    assert any("database=default clock_offset_seconds=-3" in m for m in caplog.messages)
