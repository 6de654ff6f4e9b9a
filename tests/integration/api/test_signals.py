"""Signals: after the commit, once, and harmless."""

from __future__ import annotations

import logging
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from django.db import transaction
from django.dispatch import Signal

import hipq_django as hipq
from hipq_django import signals
from hipq_django.conf.instances import get_instance
from hipq_django.maintenance import recovery
from hipq_django.models import Job
from tests.declaring import Declare
from tests.listening import connected
from tests.running import run_due_jobs

pytestmark = [pytest.mark.conformance, pytest.mark.django_db(transaction=True)]

SIGNALS: dict[str, Signal] = {
    "job_enqueued": signals.job_enqueued,
    "job_started": signals.job_started,
    "job_failed": signals.job_failed,
    "job_finished": signals.job_finished,
}


@pytest.fixture
def heard() -> Iterator[list[tuple[str, int, str, str]]]:
    """What was sent: signal, job, its state and outcome as the receiver saw them."""
    heard: list[tuple[str, int, str, str]] = []
    with ExitStack() as stack:
        for name, signal in SIGNALS.items():

            def receive(sender: Any, job: Job, name: str = name, **_: Any) -> None:
                assert sender is Job
                heard.append((name, job.pk, str(job.state), str(job.outcome)))

            stack.enter_context(connected(receive, signal))
        yield heard


def sent(heard: list[Any], name: str) -> list[Any]:
    return [rest for first, *rest in heard if first == name]


def succeed() -> None:
    hipq.enqueue("echo")
    run_due_jobs()


def fail() -> None:
    hipq.enqueue("boom")
    run_due_jobs()


def snooze() -> None:
    hipq.enqueue("sleepy")
    run_due_jobs()


def answer() -> None:
    hipq.enqueue_many([hipq.NewJob("ask", job_key=key) for key in "ab"])
    run_due_jobs()
    hipq.complete("ask", "a", response="paid")
    hipq.fail("ask", "b", error="declined")


def replace() -> None:
    for on_conflict in ("raise", "replace", "return"):
        hipq.enqueue("ask", job_key="k", on_conflict=on_conflict)


ENQUEUED, STARTED = ("job_enqueued", "NONE"), ("job_started", "NONE")
FAILED = ("job_failed", "NONE")


@pytest.mark.parametrize(
    ("act", "told"),
    [
        (succeed, [ENQUEUED, STARTED, ("job_finished", "succeeded")]),
        (fail, [ENQUEUED, STARTED, FAILED, ("job_finished", "failed")]),
        (snooze, [ENQUEUED, STARTED]),
        (answer, [*[ENQUEUED] * 2, *[STARTED] * 2, ("job_finished", "succeeded"), FAILED]),
        (replace, [ENQUEUED, ("job_finished", "cancelled"), ENQUEUED]),
    ],
)
def test_each_step_of_a_job_is_told(
    act: Callable[[], None], told: Any, heard: list[Any], declare: Declare
) -> None:
    @declare("sleepy")
    def sleepy(job: Job) -> None:
        raise hipq.Snooze(60)

    act()

    assert [(name, outcome) for name, _, _, outcome in heard] == told
    states = {"job_enqueued": "initial", "job_started": "running", "job_failed": "error"}
    assert all(state == states.get(name, "final") for name, _, state, _ in heard)


def test_a_timeout_is_a_failure(heard: list[Any], declare: Declare) -> None:
    declare("charge", timeout=0.001)(lambda job: hipq.WAIT)
    job = hipq.enqueue("charge")
    run_due_jobs()
    while not recovery.time_out_overdue(get_instance()) and not sent(heard, "job_failed"):
        pass
    run_due_jobs()

    assert sent(heard, "job_failed") == [[job.pk, "error", "NONE"]]
    assert sent(heard, "job_finished") == [[job.pk, "final", "timed_out"]]


# After the commit


def test_nothing_is_told_before_the_commit(heard: list[Any]) -> None:
    with transaction.atomic():
        job = hipq.enqueue("ask", job_key="k")
        hipq.enqueue_many([hipq.NewJob("ask")])
        hipq.cancel(job)
        before = list(heard)

    assert before == []
    assert [name for name, *_ in heard] == ["job_enqueued", "job_enqueued", "job_finished"]


def test_who_hears_only_of_the_end_sees_the_error_too(declare: Declare) -> None:
    errors: list[Any] = []

    def look(job: Job, **_: Any) -> None:
        errors.append((job.error, Job.objects.get(pk=job.pk).error))

    declare("flaky")(lambda job: 1 / 0)
    with connected(look, signals.job_finished):
        hipq.enqueue("flaky")
        run_due_jobs()

    assert errors == [("ZeroDivisionError: division by zero",) * 2]


@pytest.mark.parametrize("error", [SystemExit(3), CancelledError("a"), KeyError("a")])
def test_a_receiver_that_exits_harms_nobody(
    caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    def exits(**_: Any) -> None:
        raise error

    with connected(exits, *SIGNALS.values()), caplog.at_level(logging.ERROR, logger="hipq_django"):
        job = hipq.enqueue("echo")
        behind = hipq.enqueue("echo", after=[job])
        run_due_jobs()

    job.refresh_from_db()
    behind.refresh_from_db()
    assert (job.outcome, behind.outcome) == ("succeeded", "succeeded")
    said = f"{type(error).__name__}: {error}"
    assert sum(said in message for message in caplog.messages) == 6
