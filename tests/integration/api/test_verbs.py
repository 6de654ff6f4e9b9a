"""Each verb takes a job, or a type and a key; also on a declaration, and in async code."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import cycle, product
from typing import Any

import pytest
from asgiref.sync import async_to_sync

import hipq_django as hipq
from hipq_django.job_types.registry import get_declared
from hipq_django.models import Answer, Job
from tests.declaring import Declare
from tests.factories import JobFactory
from tests.hand_worker import HandWorker
from tests.running import run_due_jobs

NIGHT = datetime(2030, 5, 1, 2, tzinfo=UTC)

pytestmark = pytest.mark.django_db

# Of each verb: what it is given beside the job, the job's state, what shows that it worked.
WAITING, RUNNING, FINAL = "waiting", "running", "final"
VERBS: dict[str, tuple[tuple[Any, ...], str, Callable[[Job], Any]]] = {
    "cancel": ((), WAITING, lambda job: job.outcome == "cancelled"),
    "run_now": ((), WAITING, lambda job: job.time_windows == []),
    "reschedule": ((NIGHT,), WAITING, lambda job: job.scheduled_run_time.year == 2030),
    "reprioritize": ((7,), WAITING, lambda job: job.priority == 7),
    "requeue": ((), FINAL, lambda job: job.successors.count() == 1),
    "explain": ((), WAITING, lambda job: True),
    "complete": (({"ok": 1},), RUNNING, lambda job: job.result == {"ok": 1}),
    "fail": (("declined",), RUNNING, lambda job: job.error == "declined"),
    "progress": ((40, "page 4"), RUNNING, lambda job: job.progress == 40),
    "extend": ((600,), RUNNING, lambda job: job.extended_seconds == 600),
}


def prepared(state: str) -> Job:
    """Return a job of type `ask` with a key, in this state."""
    options = {"delay": 3_600, "time_windows": ["03:00-04:00"]} if state == WAITING else {}
    job = hipq.enqueue("ask", job_key="order-7", timeout=3_600, **options)  # type: ignore[arg-type]  # by state
    if state != WAITING:
        run_due_jobs()
    if state == FINAL:
        hipq.complete("ask", "order-7", {})
    return Job.objects.get(pk=job.pk)


def by_job(verb: str, job: Job, *given: Any) -> Any:
    return getattr(hipq, verb)(job, *given)


def by_key(verb: str, job: Job, *given: Any) -> Any:
    return getattr(hipq, verb)("ask", "order-7", *given)


def by_named_key(verb: str, job: Job, *given: Any) -> Any:
    return getattr(hipq, verb)(job_type="ask", job_key="order-7", **named(verb, given))


def by_declaration(verb: str, job: Job, *given: Any) -> Any:
    return getattr(get_declared("default", "ask"), verb)("order-7", *given)


def by_async_job(verb: str, job: Job, *given: Any) -> Any:
    return async_to_sync(getattr(hipq, f"a{verb}"))(job, *given)


def by_async_key(verb: str, job: Job, *given: Any) -> Any:
    return async_to_sync(getattr(hipq, f"a{verb}"))("ask", "order-7", *given)


def by_async_declaration(verb: str, job: Job, *given: Any) -> Any:
    return async_to_sync(getattr(get_declared("default", "ask"), f"a{verb}"))("order-7", *given)


def named(verb: str, given: tuple[Any, ...]) -> dict[str, Any]:
    names = {
        "cancel": ["reason"],
        "reschedule": ["at"],
        "reprioritize": ["priority"],
        "complete": ["response"],
        "fail": ["error"],
        "progress": ["percent", "message"],
        "extend": ["seconds"],
    }
    return dict(zip(names.get(verb, []), given, strict=False))


OWN_OF_EACH_VERB = [by_named_key, by_declaration, by_async_declaration]
SAME_FOR_ALL = [by_job, by_key, by_async_job, by_async_key]


@pytest.mark.conformance
@pytest.mark.parametrize(
    ("verb", "way"),
    [*product(VERBS, OWN_OF_EACH_VERB), *zip(VERBS, cycle(SAME_FOR_ALL), strict=False)],
)
def test_a_verb_takes_a_job_or_its_type_and_key(verb: str, way: Callable[..., Any]) -> None:
    given, state, worked = VERBS[verb]
    job = prepared(state)
    expected = type(by_job("explain", job)) if verb == "explain" else None

    result = way(verb, job, *given)

    assert worked(Job.objects.get(pk=job.pk))
    assert expected is None or isinstance(result, expected)


NAMES_NO_JOB: dict[str, tuple[tuple[Any, ...], str]] = {
    "unknown": (("ask", "x"), "job type 'ask' has no job with key 'x'."),
    "none": (("ask", None), "job_key None"),
    "empty": (("ask", ""), "job_key ''"),
    "reserved": (("ask", "NONE"), "job_key"),
    "never enqueued": ((JobFactory.build(pk=None),), "the job was never enqueued."),
    "pruned": ((Job(pk=7),), "job 7 does not exist any more"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_what_names_no_job_is_refused_with_the_name_of_the_verb(verb: str) -> None:
    """An answer of another system is stored early for a key that is unknown."""
    is_answer, is_report = verb in ("complete", "fail"), verb in ("progress", "extend")
    for name, (about, said) in NAMES_NO_JOB.items():
        if (is_answer and name == "unknown") or (is_report and name in ("unknown", "pruned")):
            continue
        with pytest.raises(hipq.HipqError, match=re.escape(said)) as raised:
            getattr(hipq, verb)(*about, *VERBS[verb][0])
        if raised.type is hipq.InvalidJobError:
            assert str(raised.value).startswith(f"{verb}: ")


@pytest.mark.parametrize("given", [(), ("ask",), (7,), (None, "order-7"), (JobFactory, "order-7")])
def test_neither_a_job_nor_a_type_and_a_key_is_refused(given: Any) -> None:
    with pytest.raises(TypeError, match="cancel: give a Job, or a job type and a key"):
        hipq.cancel(*given)


REFUSED: dict[str, tuple[tuple[Any, ...], str, str]] = {
    "cancel": ((), FINAL, "is final (succeeded), so there is nothing to cancel"),
    "run_now": ((), FINAL, "is final (succeeded); use requeue to run it once more."),
    "reschedule": ((NIGHT,), RUNNING, "is running; this is for waiting jobs"),
    "reprioritize": (("high",), WAITING, "priority"),
    "requeue": ((), WAITING, "is initial; only final jobs can be requeued"),
    "progress": ((101, "more than all"), RUNNING, "percent"),
    "extend": ((-1,), RUNNING, "seconds"),
}


@pytest.mark.parametrize("way", [by_job, by_key, by_async_declaration])
@pytest.mark.parametrize("verb", REFUSED)
def test_a_state_or_a_value_that_cannot_be_is_refused_in_the_same_words(
    verb: str, way: Callable[..., Any]
) -> None:
    given, state, said = REFUSED[verb]
    job = prepared(state)

    with pytest.raises(hipq.InvalidJobError, match=rf"^{verb}: .*{re.escape(said)}"):
        way(verb, job, *given)


def test_a_report_about_a_job_that_is_not_running_is_answered_not_refused() -> None:
    """A partner may be late, and does not know when jobs are pruned."""
    final = prepared(FINAL)
    pruned = JobFactory.create(state="final")
    Job.objects.filter(pk=pruned.pk).delete()

    for about in ((final,), ("ask", "order-7"), ("ask", "x"), (pruned,)):
        assert hipq.progress(*about, 40) is False  # type: ignore[call-overload]  # either way
        assert hipq.extend(*about, 60) is None  # type: ignore[call-overload]  # either way


# Answers to a job


def test_an_answer_to_a_job_needs_no_key() -> None:
    job = hipq.enqueue("ask")
    run_due_jobs()

    answer = hipq.complete(job, {"ok": True}, message_id="m-1")

    job.refresh_from_db()
    assert (job.result, answer.job, answer.status) == ({"ok": True}, job, "accepted")
    assert hipq.complete(job, {"other": 1}, message_id="m-1").pk == answer.pk
    assert Answer.objects.count() == 1


# In a handler


@pytest.mark.parametrize("key", ["k", None])
def test_a_handler_reports_and_extends_with_or_without_a_key(
    key: str | None, declare: Declare
) -> None:
    seen: list[Any] = []

    @declare("steps", timeout=600)
    def steps(job: Job) -> Any:
        before = job.deadline
        moved = job.extend(60)
        seen.append((job.report(25, "part 1 of 4"), moved == before + timedelta(seconds=60)))
        row = Job.objects.get(pk=job.pk)
        seen.append((row.progress, row.progress_message, row.deadline == moved))
        return {}

    job = hipq.enqueue("steps", job_key=key)
    run_due_jobs()

    assert seen == [(True, True), (25, "part 1 of 4", True)]
    job.refresh_from_db()
    assert (job.outcome, job.progress) == ("succeeded", 100)


def test_an_attempt_that_lost_its_job_reports_nothing() -> None:
    worker = HandWorker()
    hipq.enqueue("echo")
    worker.run_pass()
    [first] = worker.claims
    Job.objects.filter(pk=first.id).update(attempt=2)

    assert first.job.report(50) is False
    assert first.job.extend(50) is None
    assert hipq.progress(first.job, 50) is True  # who is no handler means whatever runs now
    assert Job.objects.get(pk=first.id).progress == 50
