"""Names that no code declares, and data that is too large."""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.answers.intake import Intake
from hipq_django.conf.instances import get_instance
from hipq_django.conf.options import source_settings
from hipq_django.exceptions import InvalidScheduleError
from hipq_django.models import Answer, Job, Queue, Schedule, undeclared_names
from hipq_django.sources import Received
from tests.declaring import Declare

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


def test_messages_from_outside_are_stored_strict_or_not(settings: Settings) -> None:
    """Their sender does not know what this project declares."""
    settings.HIPQ = {"default": {"STRICT": True}}
    received = Received(b"{}", message_id="m-1")
    source = source_settings("bank", {"SOURCE": "a.b", "MAP": f"{__name__}.to_answer"})

    Intake(get_instance(), source).take_all([received])

    assert Answer.objects.get().job_type == "ehco"


def to_answer(received: Received) -> hipq.NewAnswer:
    return hipq.NewAnswer("ehco", "k", response=1)
