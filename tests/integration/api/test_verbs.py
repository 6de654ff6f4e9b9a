"""Each verb takes a job, or a type and a key; also on a declaration, and in async code."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import cycle, product
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from pytest_django import Settings

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


BAD: dict[str, tuple[Any, ...]] = {
    "cancel": (5,),
    "reschedule": (datetime(2030, 5, 1, 2),),  # noqa: DTZ001 - that is what is refused
    "reprioritize": ("high",),
    "progress": (101, "more than all"),
    "extend": (-1,),
}


@pytest.mark.parametrize("way", [by_key, by_async_declaration])
@pytest.mark.parametrize("verb", ["cancel", "run_now", "reschedule", "reprioritize", "requeue"])
def test_a_job_in_another_state_is_refused_in_the_same_words(
    verb: str, way: Callable[..., Any]
) -> None:
    job = prepared(WAITING if verb == "requeue" else FINAL)
    wants = {
        "requeue": rf"requeue: {job} is initial; only final jobs can be requeued. Use run_now for "
        "a waiting job.",
        "cancel": f"cancel: {job} is final (succeeded), so there is nothing to cancel; "
        "to cancel what it has enqueued, cancel it with its descendants.",
    }

    with pytest.raises(hipq.InvalidJobError) as raised:
        way(verb, job, *VERBS[verb][0])

    final = f"{verb}: {job} is final (succeeded); use requeue to run it once more."
    assert str(raised.value) == wants.get(verb, final)


@pytest.mark.parametrize("way", [by_declaration, by_async_declaration])
@pytest.mark.parametrize("verb", BAD)
def test_a_value_that_cannot_be_is_refused_in_the_same_words(
    verb: str, way: Callable[..., Any]
) -> None:
    job = prepared(VERBS[verb][1])

    with pytest.raises(hipq.InvalidJobError, match=rf"^{verb}: \w+ ") as raised:
        way(verb, job, *BAD[verb])

    with pytest.raises(hipq.InvalidJobError) as by_its_job:
        by_job(verb, job, *BAD[verb])
    assert str(raised.value) == str(by_its_job.value)
    assert type(raised.value) is hipq.InvalidJobError


@pytest.mark.parametrize("key", [None, "", "NONE"])
def test_a_key_that_names_no_job_is_refused(key: Any) -> None:
    for verb, (given, _, _) in VERBS.items():
        is_answer = verb in ("complete", "fail")
        error = hipq.InvalidAnswerError if is_answer else hipq.InvalidJobError
        with pytest.raises(error, match=rf"{'' if is_answer else f'^{verb}: '}job_key {key!r}"):
            getattr(hipq, verb)("ask", key, *given)


@pytest.mark.parametrize(
    "verb", ["cancel", "run_now", "reschedule", "reprioritize", "requeue", "explain"]
)
def test_an_unknown_key_is_refused(verb: str) -> None:
    with pytest.raises(
        hipq.InvalidJobError, match=rf"^{verb}: job type 'ask' has no job with key 'x'\.$"
    ):
        getattr(hipq, verb)("ask", "x", *VERBS[verb][0])


def test_a_report_about_a_job_that_is_not_running_is_answered_not_refused() -> None:
    """A partner may be late, and does not know when jobs are pruned."""
    final = prepared(FINAL)
    pruned = JobFactory.create(state="final")
    Job.objects.filter(pk=pruned.pk).delete()

    for about in ((final,), ("ask", "order-7"), ("ask", "x"), (pruned,)):
        assert hipq.progress(*about, 40) is False  # type: ignore[call-overload]  # either way
        assert hipq.extend(*about, 60) is None  # type: ignore[call-overload]  # either way


@pytest.mark.parametrize("verb", VERBS)
def test_a_job_that_was_never_enqueued_is_refused_in_the_same_words(verb: str) -> None:
    with pytest.raises(hipq.InvalidJobError) as raised:
        by_job(verb, JobFactory.build(pk=None), *VERBS[verb][0])

    assert str(raised.value) == f"{verb}: the job was never enqueued."


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in ("progress", "extend")])
def test_a_job_that_was_pruned_is_refused_in_the_same_words(verb: str) -> None:
    job = JobFactory.create(state="final")
    Job.objects.filter(pk=job.pk).delete()

    with pytest.raises(hipq.InvalidJobError) as raised:
        by_job(verb, job, *VERBS[verb][0])

    assert str(raised.value) == (
        f"{verb}: job {job.pk} does not exist any more; it was pruned, or its transaction was "
        "rolled back."
    )


NEEDED = {
    "reschedule": ", at",
    "reprioritize": ", priority",
    "fail": ", error",
    "progress": ", percent",
    "extend": ", seconds",
}
"""What a verb needs beside the job, as its advice names it."""


@pytest.mark.parametrize(
    ("args", "options", "why"),
    [
        ((), {"job": 7}, "the job has its place and no name"),
        ((), {}, "no job is given"),
        (("ask",), {}, "'ask' is no Job"),
        ((7,), {}, "7 is no Job"),
        ((4, 1), {}, "4 is no Job"),
        ((None, "order-7", 1), {}, "None is no Job"),
        ((), {"job_type": 4, "job_key": "order-7"}, "4 is no Job"),
    ],
)
def test_neither_a_job_nor_a_key_is_refused_with_the_way_out(
    args: Any, options: Any, why: str
) -> None:
    for verb in VERBS:
        needed = NEEDED.get(verb, "")
        with pytest.raises(TypeError) as raised:
            getattr(hipq, verb)(*args, **options)

        assert str(raised.value) == (
            f"{verb}: {why}; write {verb}(job{needed}), or "
            f'{verb}("charge_card", "order-7"{needed}) with a job type and a key.'
        )


def test_a_forgotten_key_is_told_with_the_way_out() -> None:
    for verb in NEEDED:
        with pytest.raises(TypeError, match=f"^{verb}: 'ask' is no Job; write {verb}"):
            getattr(hipq, verb)("ask", 5)


@pytest.mark.parametrize("verb", VERBS)
def test_a_declaration_is_refused_with_its_own_verb(verb: str, declare: Declare) -> None:
    @declare("bank.charge")
    def charge_card(job: Job) -> None: ...

    with pytest.raises(TypeError) as raised:
        getattr(hipq, verb)(charge_card, "order-7")

    needed = NEEDED.get(verb, "")
    assert str(raised.value) == (
        f"{verb}: the declaration of 'bank.charge' is no Job; write {verb}(job{needed}), or "
        f'charge_card.{verb}("order-7"{needed}) with a key.'
    )


@pytest.mark.parametrize("verb", VERBS)
def test_a_job_in_the_place_of_its_key_is_refused_with_the_way_out(verb: str) -> None:
    given, state, _ = VERBS[verb]
    job = prepared(state)

    with pytest.raises(TypeError) as raised:
        getattr(get_declared("default", "ask"), verb)(job, *given)

    assert str(raised.value) == (
        f"{verb}: {job} is a Job, but the verbs of a job type take a job_key; "
        f"call hipq_django.{verb}(job{NEEDED.get(verb, '')})."
    )


def test_an_instance_belongs_to_a_key() -> None:
    job = prepared(WAITING)

    with pytest.raises(hipq.InvalidJobError, match="'default', and instance='other' is given"):
        hipq.cancel(job, instance="other")

    assert hipq.cancel(job, instance="default").is_final


def test_of_several_final_jobs_the_newest_is_meant() -> None:
    first = prepared(FINAL)
    second = prepared(FINAL)

    fresh = hipq.requeue("ask", "order-7")

    assert (fresh.origin_id, second.pk > first.pk) == (second.pk, True)


# Answers to a job


def test_an_answer_to_a_job_needs_no_key() -> None:
    job = hipq.enqueue("ask")
    run_due_jobs()

    answer = hipq.complete(job, {"ok": True}, message_id="m-1")

    job.refresh_from_db()
    assert (job.result, answer.job, answer.status) == ({"ok": True}, job, "accepted")
    assert hipq.complete(job, {"other": 1}, message_id="m-1").pk == answer.pk
    assert Answer.objects.count() == 1


def test_an_answer_to_a_job_finds_it_under_its_new_key(declare: Declare) -> None:
    @declare("renames")
    def renames(job: Job) -> Any:
        job.set_key("theirs")
        return hipq.WAIT

    job = hipq.enqueue("renames", job_key="ours")
    run_due_jobs()

    answer = hipq.complete(job, "fine")

    assert (answer.job_key, Job.objects.get(pk=job.pk).result) == ("theirs", "fine")


def test_an_answer_to_a_job_that_is_final_is_late() -> None:
    assert hipq.complete(prepared(FINAL), {"other": 1}).status == "late"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"message_id": ""}, "message_id ''"),
        ({"part": "#1"}, "part '#1'"),
        ({"response": object()}, "not JSON"),
    ],
)
def test_an_answer_to_a_job_that_cannot_be_stored_is_refused(given: Any, said: str) -> None:
    job = prepared(RUNNING)

    with pytest.raises(hipq.InvalidAnswerError, match=said):
        hipq.complete(job, **given)

    assert not Answer.objects.exists()


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


def test_an_async_handler_reports_and_extends(declare: Declare) -> None:
    seen: list[Any] = []

    @declare("steps")
    async def steps(job: Job) -> Any:
        seen.extend([await job.areport(25), await job.aextend(60) is not None])

    hipq.enqueue("steps")
    run_due_jobs()

    assert seen == [True, True]


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


@pytest.mark.parametrize("percent", [101, "half"])
def test_a_report_that_cannot_be_is_refused(percent: Any) -> None:
    job = prepared(RUNNING)

    with pytest.raises(hipq.InvalidJobError, match="percent"):
        job.report(percent)


# A success is all of it


@pytest.mark.parametrize("handled", [False, True])
def test_a_job_that_succeeded_by_its_answer_is_done(handled: bool, declare: Declare) -> None:
    asks = declare("asks")(lambda job: hipq.WAIT)
    if handled:
        asks.on_response(lambda job, response: response)
    job = asks.enqueue(job_key="k")
    run_due_jobs()
    hipq.progress(job, 40)

    asks.complete("k", "fine")
    run_due_jobs()

    job.refresh_from_db()
    assert (job.outcome, job.progress) == ("succeeded", 100)


def test_a_job_that_failed_stays_where_it_was(declare: Declare) -> None:
    @declare("half")
    def half(job: Job) -> Any:
        job.report(50)
        raise ValueError("no more")

    job = half.enqueue()
    run_due_jobs()

    job.refresh_from_db()
    assert (job.outcome, job.progress) == ("failed", 50)


def test_declarations_of_another_instance_mean_its_jobs(
    settings: Settings, declare: Declare
) -> None:
    settings.HIPQ = {"default": {}, "other": {}}
    asks = declare("asks", instance="other")(lambda job: hipq.WAIT)
    job = asks.enqueue(job_key="k")

    assert asks.cancel("k").pk == job.pk
    with pytest.raises(hipq.InvalidJobError, match="no job with key"):
        hipq.cancel("asks", "k")
