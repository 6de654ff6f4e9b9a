"""Names that no code declares, data that is too large, and sync verbs in async code: all speak."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import SynchronousOnlyOperation
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.answers.intake import Intake
from hipq_django.conf.instances import get_instance
from hipq_django.conf.options import source_settings
from hipq_django.exceptions import InvalidScheduleError
from hipq_django.models import Answer, Job, Queue, Schedule, undeclared_names
from hipq_django.sources import Received
from tests.declaring import Declare
from tests.running import run_due_jobs
from tests.testapp.jobs import echo

pytestmark = pytest.mark.django_db


def batch_before(name: str) -> None:
    with hipq.batch(then=hipq.NewJob(name)):
        pass


CALLS: dict[str, Any] = {
    "enqueue": lambda: hipq.enqueue("ehco"),
    "enqueue_many": lambda: hipq.enqueue_many([hipq.NewJob("ehco")]),
    "chain": lambda: hipq.chain(hipq.NewJob("ehco")),
    "batch": lambda: batch_before("ehco"),
    "schedule 's'": lambda: hipq.schedule("s", hipq.NewJob("ehco"), "@hourly"),
    "complete": lambda: hipq.complete("ehco", "k", 1),
    "fail": lambda: hipq.fail("ehco", "k", "no"),
    "receive_many": lambda: hipq.receive_many([hipq.NewAnswer("ehco", "k")]),
}


@pytest.fixture(autouse=True)
def nobody_was_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(undeclared_names, "_warned", set())


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "undeclared_job_type" in r.getMessage()]


@pytest.mark.parametrize("verb", CALLS)
def test_a_name_that_nobody_declares_is_warned_of_once(
    verb: str, caplog: pytest.LogCaptureFixture
) -> None:
    CALLS[verb]()
    CALLS[verb]()

    [said] = warnings(caplog)
    text = f"{verb}: no code of this process declares job type 'ehco', did you mean 'echo'?"
    assert f'"{text}' in said


def test_the_nearest_name_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With many job types it takes milliseconds, too long for each enqueue for another project."""
    looked: list[str] = []

    def look(name: str, known: Iterable[str]) -> str:
        looked.append(name)
        return "."

    monkeypatch.setattr(undeclared_names, "nearest_name", look)

    for _ in range(3):
        hipq.enqueue("ehco")

    assert looked == ["ehco"]


def test_a_declared_name_is_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    hipq.enqueue("echo")
    hipq.complete("ask", "k", 1)

    assert warnings(caplog) == []


@pytest.mark.parametrize("verb", CALLS)
def test_a_strict_instance_refuses_it_and_stores_nothing(verb: str, settings: Settings) -> None:
    settings.HIPQ = {"default": {"STRICT": True}}

    is_schedule = verb.startswith("schedule")
    error = InvalidScheduleError if is_schedule else hipq.InvalidJobTypeError
    with pytest.raises(error, match=rf"^{verb}: no .* did you mean 'echo'\? Correct the name"):
        CALLS[verb]()

    assert not Job.objects.exists()
    assert not Schedule.objects.exists()
    assert not Answer.objects.exists()


@pytest.mark.parametrize("verb", ["cancel", "run_now", "requeue", "explain", "progress"])
def test_verbs_by_key_are_strict_too(verb: str, settings: Settings) -> None:
    settings.HIPQ = {"default": {"STRICT": True}}
    more = [5] if verb == "progress" else []

    with pytest.raises(hipq.InvalidJobTypeError, match=rf"{verb}: no code .*'ehco'"):
        getattr(hipq, verb)("ehco", "k", *more)


def test_in_tests_names_are_strict_unless_the_setting_says_otherwise(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undeclared_names, "_strict_in_tests", True)

    with pytest.raises(hipq.InvalidJobTypeError):
        hipq.enqueue("ehco")
    settings.HIPQ = {"default": {"STRICT": False}}
    assert hipq.enqueue("ehco").pk


def test_warnings_are_bounded(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undeclared_names, "MOST_WARNINGS", 10)
    for number in range(15):
        undeclared_names.check_declared("default", f"name {number}", "enqueue")

    assert len(warnings(caplog)) == 10


# Queues


def of_queues(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if "undeclared_queue" in r.getMessage()]


def test_a_queue_that_nothing_declares_is_warned_of_once(
    declare: Declare, settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    settings.HIPQ = {"default": {"QUEUES": {"bank": {}}}}
    declare("charge", queue="cards")(lambda job: None)
    for known in ("bank", "cards", "default", None):
        hipq.enqueue("echo", queue=known)
    Queue.objects.create(name="mails")
    hipq.enqueue("echo", queue="mails")
    assert of_queues(caplog) == []

    hipq.enqueue("echo", queue="mials")
    Queue.objects.filter(name="mials").update(name="gone")
    hipq.enqueue_many([hipq.NewJob("echo", queue="mials")])
    hipq.enqueue("echo", queue="bnak")

    mails, bank = of_queues(caplog)
    assert "queue 'mials' is new, and neither" in mails
    assert "did you mean 'mails'?" in mails
    assert "did you mean 'bank'?" in bank


def test_a_strict_instance_refuses_a_queue_that_nothing_declares(settings: Settings) -> None:
    settings.HIPQ = {"default": {"STRICT": True, "QUEUES": {"bank": {}}}}

    said = r"queue 'bnak' is new.*did you mean 'bank'\?"
    with pytest.raises(hipq.InvalidJobError, match=f"^enqueue: {said}"):
        hipq.enqueue("echo", queue="bnak")
    with pytest.raises(hipq.InvalidJobError, match=f"^enqueue_many: {said}"):
        hipq.enqueue_many([hipq.NewJob("echo", queue="bnak")])
    with pytest.raises(InvalidScheduleError, match=f"^schedule 's': {said}"):
        hipq.schedule("s", hipq.NewJob("echo", queue="bnak"), "@hourly")

    assert not Queue.objects.filter(name="bnak").exists()
    assert hipq.enqueue("echo", queue="bank").pk


# Data


def test_data_is_bounded(settings: Settings) -> None:
    settings.HIPQ = {"default": {"MAX_DATA_BYTES": 1_000}}

    assert hipq.enqueue("echo", "x" * 998).pk
    with pytest.raises(hipq.InvalidJobError) as raised:
        hipq.enqueue("echo", "é" * 500)
    assert str(raised.value) == (
        "job_data has 1,002 bytes as JSON, and at most 1,000 are stored; keep it elsewhere and "
        "give its id, or raise MAX_DATA_BYTES in the setting HIPQ."
    )
    with pytest.raises(hipq.InvalidJobError, match="at most 1,000 are stored"):
        hipq.enqueue_many([hipq.NewJob("echo", "x" * 999)])


def test_a_megabyte_is_the_default_and_none_is_no_bound(settings: Settings) -> None:
    with pytest.raises(hipq.InvalidJobError, match="at most 1,000,000 are stored"):
        hipq.enqueue("echo", "x" * 1_000_000)
    settings.HIPQ = {"default": {"MAX_DATA_BYTES": None}}

    assert hipq.enqueue("echo", "x" * 1_000_000).pk


def test_a_retry_handler_obeys_the_bound(settings: Settings, declare: Declare) -> None:
    settings.HIPQ = {"default": {"MAX_DATA_BYTES": 1_000}}

    @declare("grows")
    def grows(job: Job) -> None:
        raise ValueError

    @grows.on_error
    def grow(job: Job) -> Any:
        job.job_data = "x" * 1_000
        return hipq.RetryIn(0)

    job = hipq.enqueue("grows")
    run_due_jobs()

    job.refresh_from_db()
    assert job.outcome == "failed"
    assert job.job_data == {}


# Async code


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("verb", "given"),
    [
        ("enqueue", ("echo",)),
        ("enqueue_many", ([hipq.NewJob("echo")],)),
        ("cancel", ("echo", "k")),
        ("complete", ("echo", "k", 1)),
        ("receive_many", ([hipq.NewAnswer("echo", "k")],)),
        ("get_job", (1,)),
        ("chain", (hipq.NewJob("echo"),)),
        ("unschedule", ("nightly",)),
    ],
)
def test_a_sync_verb_in_async_code_names_its_twin(verb: str, given: Any) -> None:
    async def called() -> None:
        getattr(hipq, verb)(*given)

    Queue.objects.exists()
    with pytest.raises(SynchronousOnlyOperation, match=rf"await hipq_django\.a{verb}\(…\)"):
        async_to_sync(called)()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("called", "twin"),
    [
        (lambda job: job.report(50), r"await job\.areport\(…\)"),
        (lambda job: job.extend(60), r"await job\.aextend\(…\)"),
        (lambda job: job.set_key("k"), r"await job\.aset_key\(…\)"),
        (lambda job: job.answers_so_far, r"await job\.aanswers_so_far\(…\)"),
        (lambda job: list(job.inputs()), r"async for … in job\.ainputs\(…\)"),
        (lambda job: job.first_inputs(), r"await job\.afirst_inputs\(…\)"),
        (lambda job: hipq.batch().__enter__(), r"async with hipq_django\.abatch\(…\)"),
        (lambda job: echo.enqueue(1), r"await hipq_django\.aenqueue\(…\)"),
        (lambda job: echo.cancel("k"), r"await hipq_django\.acancel\(…\)"),
    ],
)
def test_sync_methods_in_async_code_name_theirs(called: Callable[[Job], Any], twin: str) -> None:
    job = hipq.enqueue("echo")

    async def in_async_code() -> None:
        called(job)

    with pytest.raises(SynchronousOnlyOperation, match=twin):
        async_to_sync(in_async_code)()


@pytest.mark.django_db(transaction=True)
def test_a_task_that_is_enqueued_in_async_code_names_its_twin(declare: Declare) -> None:
    @declare.task("shop.add")
    def add(number: int) -> int:
        return number

    async def in_async_code() -> None:
        add.using(priority=1).enqueue(1)

    twin = r"^add\.enqueue was used .* await add\.aenqueue\(…\) instead"
    with pytest.raises(SynchronousOnlyOperation, match=twin):
        async_to_sync(in_async_code)()


@pytest.mark.django_db(transaction=True)
def test_a_batch_of_async_code_names_the_twin_of_its_methods() -> None:
    async def in_async_code() -> None:
        async with hipq.abatch() as batch:
            batch.enqueue(hipq.NewJob("echo"))

    with pytest.raises(SynchronousOnlyOperation, match=r"await batch\.aenqueue\(…\)"):
        async_to_sync(in_async_code)()
    assert not Job.objects.exists()


def test_messages_from_outside_are_stored_strict_or_not(settings: Settings) -> None:
    """Their sender does not know what this project declares."""
    settings.HIPQ = {"default": {"STRICT": True}}
    received = Received(b"{}", message_id="m-1")
    source = source_settings("bank", {"SOURCE": "a.b", "MAP": f"{__name__}.to_answer"})

    Intake(get_instance(), source).take_all([received])

    assert Answer.objects.get().job_type == "ehco"


def to_answer(received: Received) -> hipq.NewAnswer:
    return hipq.NewAnswer("ehco", "k", response=1)
