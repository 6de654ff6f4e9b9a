"""The consumer process and any source: received, committed, acknowledged, in this order."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import DataError, IntegrityError, OperationalError, ProgrammingError
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.answers import api, intake
from hipq_django.conf.instances import get_instance
from hipq_django.conf.options import source_settings
from hipq_django.database import isolation
from hipq_django.exceptions import ConfigurationError
from hipq_django.models import Answer, Job, Worker
from hipq_django.processes.consumer import ConsumerProcess
from hipq_django.sources import Received
from tests import mailbox as module
from tests.declaring import Declare
from tests.mailbox import Mailbox
from tests.running import run_due_jobs
from tests.settings import ENGINE

pytestmark = pytest.mark.django_db(transaction=True)

Consume = Callable[..., ConsumerProcess]


@pytest.fixture
def mailbox(monkeypatch: pytest.MonkeyPatch) -> Mailbox:
    """An empty mailbox."""
    mailbox = Mailbox()
    monkeypatch.setattr(module, "mailbox", mailbox)
    return mailbox


@pytest.fixture
def consume(mailbox: Mailbox, settings: Settings) -> Iterator[Consume]:
    """Run a consumer until the mailbox is empty."""

    def run(map_function: str = "read", **options: Any) -> ConsumerProcess:
        settings.HIPQ = {
            "default": {
                "ENGINE": ENGINE,
                "HEARTBEAT_SECONDS": 3600,
                "SOURCES": {
                    "post": {
                        "SOURCE": "tests.mailbox.MailboxSource",
                        "MAP": f"tests.mailbox.{map_function}",
                        **options,
                    }
                },
            }
        }
        process = ConsumerProcess("post")
        mailbox.stop = process.stop
        process.run()
        return process

    yield run
    assert mailbox.opened == mailbox.closed


def asked(number: int) -> None:
    hipq.enqueue_many([hipq.NewJob("ask", job_key=f"k-{n}") for n in range(number)])
    run_due_jobs()


def response(number: int, **more: Any) -> bytes:
    return json.dumps({"key": f"k-{number}", "response": number} | more).encode()


def results() -> list[Any]:
    return list(Job.objects.order_by("pk").values_list("result", flat=True))


def malformed() -> Answer:
    return Answer.objects.get(kind="malformed")


@pytest.mark.conformance
def test_messages_settle_their_jobs_in_batches(mailbox: Mailbox, consume: Consume) -> None:
    asked(5)
    mailbox.put(*[response(n) for n in range(5)])

    consume(BATCH_SIZE=2)

    assert results() == [0, 1, 2, 3, 4]
    assert mailbox.batches == [2, 2, 1, 0]
    assert mailbox.unacknowledged == []
    assert set(Answer.objects.values_list("message_id", flat=True)) == {
        f"post: m-{n}" for n in range(5)
    }


@pytest.mark.conformance
def test_a_message_that_is_delivered_again_changes_nothing(
    mailbox: Mailbox, consume: Consume
) -> None:
    asked(2)
    mailbox.put(response(0), response(1))
    mailbox.failures.append(("acknowledge", OSError("gone")))

    consume()

    assert mailbox.batches == [2, 2, 0]
    assert mailbox.opened == 2
    assert Answer.objects.count() == 2
    assert results() == [0, 1]


def test_an_id_of_the_message_itself_goes_before_that_of_the_broker(
    mailbox: Mailbox, consume: Consume
) -> None:
    asked(1)
    mailbox.put(response(0, id="theirs"), response(0, id="theirs"))

    consume()

    assert Answer.objects.get().message_id == "theirs"


def test_a_message_that_is_not_ours_is_not_stored(mailbox: Mailbox, consume: Consume) -> None:
    mailbox.put(b'{"topic": "weather"}')

    consume()

    assert mailbox.batches == [1, 0]
    assert Answer.objects.count() == 0


# Messages that are no answers

DEEP = b"[" * 100_000 + b"]" * 100_000
DEEP_FOR_US = b'{"key": "k", "response": ' + b"[" * 600 + b"]" * 600 + b"}"

POISON = {
    "not JSON": (b"{", "ValueError: the body is not JSON in UTF-8"),
    "not UTF-8": (b'{"key": "\xff"}', "ValueError: the body is not JSON in UTF-8"),
    "too deep to parse": (DEEP, "nested too deeply"),
    "too deep to store": (DEEP_FOR_US, "nested deeper than 500 levels"),
    "no key": (b"{}", "KeyError: 'key'"),
    "not an object": (b"5", "TypeError"),
    "key is a number": (b'{"key": 5}', "InvalidAnswerError: answer: job_key 5"),
    "key of 10 MB": (b'{"key": "%s"}' % (b"x" * 10_000_000), "too long to be shown"),
    "type is a list": (b'{"type": ["a"], "key": "k"}', "job type ['a']"),
    "NaN": (b'{"key": "k", "response": NaN}', "not JSON"),
    "NUL": (b'{"key": "k", "response": "a\\u0000b"}', "NUL"),
    "lone surrogate": (b'{"key": "k", "response": "\\ud800"}', "lone surrogate"),
    "response and error": (b'{"key": "k", "response": 1, "error": 2}', "give one"),
    "a response that is too large": (
        b'{"key": "k", "response": "%s"}' % (b"x" * 16_000_000),
        "has 16,000,002 bytes as JSON",
    ),
    "an id that is none": (b'{"key": "k", "id": ""}', "message_id ''"),
}


@pytest.mark.conformance
def test_a_message_that_is_no_answer_is_kept_and_blocks_nobody(
    mailbox: Mailbox, consume: Consume
) -> None:
    asked(2)
    bodies = [body for body, _ in POISON.values()]
    mailbox.put(response(0), *bodies, response(1))

    consume()

    kept = Answer.objects.filter(kind="malformed").order_by("pk")
    for number, (row, (name, (body, problem))) in enumerate(
        zip(kept, POISON.items(), strict=True), start=1
    ):
        assert problem in row.problem, name
        assert len(row.problem) < 11_000, name
        assert _body(row.payload) == body[: intake.MAX_KEPT_BYTES], name
        assert (row.status, row.job, row.job_type, row.message_id, row.payload["source"]) == (
            "unmatched", None, "NONE", f"post: m-{number}", "post",
        ), name  # fmt: skip
    assert results() == [0, 1]
    assert mailbox.batches == [len(POISON) + 2, 0]


def _body(kept: dict[str, Any]) -> bytes:
    if "body_base64" in kept:
        return base64.b64decode(kept["body_base64"])
    return str(kept["body"]).encode()


def test_a_big_message_is_kept_up_to_a_size_with_its_length(
    mailbox: Mailbox, consume: Consume
) -> None:
    body = "é".encode() * 1_000_000
    mailbox.put(b"!" + body)

    consume()

    kept = malformed().payload
    assert kept["body_bytes"] == 2_000_001
    assert _body(kept) == (b"!" + body)[: intake.MAX_KEPT_BYTES]


def test_key_and_headers_of_a_malformed_message_are_kept(
    mailbox: Mailbox, consume: Consume
) -> None:
    mailbox.put(b"{", key=b"\xff\0", headers={"trace": b"a\xff\0", 5: None})

    consume()

    kept = malformed().payload
    assert base64.b64decode(kept["key_base64"]) == b"\xff\0"
    assert kept["headers"] == {
        "trace": "a\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}",
        "5": "None",
    }


@pytest.mark.parametrize("message_id", ["17", "x" * 255])
def test_messages_of_two_sources_with_the_same_id_are_both_taken(message_id: str) -> None:
    """Ids of AMQP, and of files in a folder, are unique within their source only."""
    asked(2)
    for number, name in enumerate(("bank", "post", "bank")):
        settings = source_settings(name, {"SOURCE": "a.b", "MAP": "tests.mailbox.read"})
        of_source = intake.Intake(get_instance(), settings)
        of_source.take_all([Received(response(number % 2), message_id)])
        of_source.take_all([Received(b"{" + name.encode(), f"{message_id[1:]}!")])

    kept = Answer.objects.filter(kind="malformed").order_by("pk")
    assert [row.payload["body"] for row in kept] == ["{bank", "{post"]
    assert results() == [0, 1]
    assert Answer.objects.count() == 4


@pytest.mark.parametrize("message_id", [None, "x" * 300, 5, "a\nb"])
def test_a_malformed_message_without_a_usable_id_is_kept_too(
    message_id: Any, mailbox: Mailbox, consume: Consume
) -> None:
    mailbox.put(b"{", message_id=message_id)

    consume()

    assert malformed().message_id == "NONE"


def test_a_malformed_message_with_parts_of_other_types_is_kept_too(
    mailbox: Mailbox, consume: Consume
) -> None:
    """As clients of brokers give them: NATS has None for no headers, SQS a body that is text."""
    asked(1)
    parts: list[dict[str, Any]] = [{"headers": None}, {"key": None}, {"key": "a"}]
    for values in [*parts, {"key": bytearray(b"a")}]:
        mailbox.put(b"{", **values)
    bodies: list[Any] = ["{", "\ud800", None, {"not": "bytes"}]
    mailbox.put(*bodies, response(0))

    consume()

    kept = Answer.objects.filter(kind="malformed").values_list("payload__source", flat=True)
    assert list(kept) == ["post"] * 8
    assert results() == [0]


def test_a_map_function_that_returns_nothing_loses_nothing(
    mailbox: Mailbox, consume: Consume
) -> None:
    mailbox.put(response(0))

    consume("forgetful")

    said = "the map function returned an object of type NoneType; return a hipq_django.NewAnswer"
    assert said in malformed().problem


def refuse(monkeypatch: pytest.MonkeyPatch, key: str, error: Exception) -> None:
    """Let no message with this key be stored."""
    real = api.receive_messages

    def picky(messages: Any, opened: Any) -> Any:
        if any(message.job_key == key for message in messages):
            raise error
        return real(messages, opened)

    monkeypatch.setattr("hipq_django.answers.intake.receive_messages", picky)


@pytest.mark.conformance
def test_a_message_that_the_database_refuses_is_kept_and_the_others_are_taken(
    mailbox: Mailbox, consume: Consume, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(3)
    mailbox.put(*[response(n) for n in range(3)])
    refuse(monkeypatch, "k-1", DataError("value out of range"))

    consume()

    assert "DataError: value out of range" in malformed().problem
    assert results() == [0, None, 2]
    assert mailbox.batches == [3, 0]


# What is away for a while


class OfStateError(Exception):
    """An error of the driver."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__(sqlstate)
        self.sqlstate = sqlstate


def of_state(sqlstate: str) -> OperationalError:
    error = OperationalError("not now")
    error.__cause__ = OfStateError(sqlstate)
    return error


def fail_three_times(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Let nothing be stored at first."""
    faults, real = [error] * 3, api.receive_messages

    def sometimes(messages: Any, opened: Any) -> Any:
        if faults:
            raise faults.pop()
        return real(messages, opened)

    monkeypatch.setattr("hipq_django.answers.intake.receive_messages", sometimes)


def test_messages_stay_in_flight_while_the_database_is_away(
    mailbox: Mailbox,
    consume: Consume,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One line says that it is back."""
    asked(3)
    mailbox.put(*[response(n) for n in range(3)])
    fail_three_times(monkeypatch, OperationalError("server closed the connection"))

    consume()

    assert mailbox.batches == [3, 0]
    assert mailbox.opened == 1
    assert results() == [0, 1, 2]
    assert not Answer.objects.filter(kind="malformed").exists()
    [back] = [line for line in caplog.messages if "event=database_back" in line]
    assert re.fullmatch(
        r'event=database_back consumer=\S+ away_seconds=[\d.]+ msg="the database is back"', back
    )


@pytest.mark.parametrize("sqlstate", [None, "55P03"], ids=["away", "locked"])
def test_a_map_function_that_finds_the_database_away_or_locked_is_called_again(
    sqlstate: str | None, mailbox: Mailbox, consume: Consume, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(1)
    mailbox.put(response(0))
    error = of_state(sqlstate) if sqlstate else OperationalError("not now")
    failures, real = [error] * 2, module.read

    def read(message: Received) -> Any:
        if failures:
            raise failures.pop()
        return real(message)

    monkeypatch.setattr(module, "read", read)

    consume()

    assert results() == [0]
    assert not Answer.objects.filter(kind="malformed").exists()


@pytest.mark.conformance
def test_a_map_function_that_waits_for_a_lock_does_not_stop_the_other_messages(
    mailbox: Mailbox, consume: Consume, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(3)
    mailbox.put(*[response(n) for n in range(3)])
    seen, real = list[Any](), module.read

    def read(message: Received) -> Any:
        if message.message_id == "m-1" and len(seen) < 4:
            seen.append(results())
            raise of_state("55P03")
        return real(message)

    monkeypatch.setattr(module, "read", read)

    consume()

    assert seen[-1] == [0, None, 2]
    assert results() == [0, 1, 2]
    assert mailbox.batches == [3, 0]


@pytest.mark.conformance
@pytest.mark.parametrize(
    "error",
    [
        ProgrammingError('function "hipq_receive_1" does not exist'),
        ConfigurationError("the functions of this database are of another version"),
        of_state("53200"),  # out of memory: perhaps the server is short of it for a moment
    ],
    ids=["missing", "version", "memory"],
)
def test_what_is_not_the_fault_of_a_message_leaves_it_to_the_broker_until_it_is_mended(
    mailbox: Mailbox,
    consume: Consume,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    asked(2)
    mailbox.put(response(0), response(1))
    fail_three_times(monkeypatch, error)

    consume()

    assert results() == [0, 1]
    assert not Answer.objects.filter(kind="malformed").exists()


def test_what_the_database_refuses_is_not_quoted_where_something_is_sensitive(
    mailbox: Mailbox,
    consume: Consume,
    declare: Declare,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    declare("charge", sensitive=["card"])(lambda job: None)
    asked(1)
    mailbox.put(response(0))
    fail_three_times(monkeypatch, IntegrityError("refused: card 4111111111111111"))

    consume()

    assert re.search("event=row_left_alone .*error=IntegrityError", caplog.text)
    assert "4111" not in caplog.text


def test_a_refusal_that_does_not_pass_is_kept(
    mailbox: Mailbox, consume: Consume, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(2)
    mailbox.put(response(0), response(1))
    monkeypatch.setattr(isolation, "PATIENCE_SECONDS", 0.0)
    refuse(monkeypatch, "k-0", of_state("53200"))

    consume()

    assert results() == [None, 1]
    assert "not now" in malformed().problem


def test_a_map_function_that_exits_ends_no_consumer(mailbox: Mailbox, consume: Consume) -> None:
    mailbox.put(response(0), response(1))

    consume("leave")

    assert [row.problem for row in Answer.objects.filter(kind="malformed")] == ["SystemExit: 3"] * 2
    assert mailbox.unacknowledged == []


def test_a_stop_while_the_database_is_away_leaves_the_messages_to_the_broker(
    mailbox: Mailbox, consume: Consume, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(2)
    mailbox.put(response(0), response(1))
    tries: list[int] = []

    def away(messages: Any, instance: str) -> Any:
        tries.append(len(messages))
        if len(tries) == 3:
            mailbox.stop()
        raise OperationalError("away")

    with monkeypatch.context() as patch:
        patch.setattr("hipq_django.answers.intake.receive_messages", away)
        consume()

    assert tries == [2, 2, 2]
    assert len(mailbox.unacknowledged) == 2
    assert results() == [None, None]

    consume()

    assert results() == [0, 1]


@pytest.mark.parametrize(
    "methods", [["open"], ["receive"], ["acknowledge"], ["receive", "close"]], ids="-".join
)
def test_a_source_that_breaks_is_made_anew(
    methods: list[str], mailbox: Mailbox, consume: Consume
) -> None:
    asked(1)
    mailbox.put(response(0))
    broken = [(name, OSError("connection reset")) for name in methods]
    mailbox.failures.extend(broken * 3)

    consume()

    assert results() == [0]
    assert not mailbox.failures


# Belonging


def test_a_consumer_is_a_process_that_serves_no_queue(mailbox: Mailbox, consume: Consume) -> None:
    job = hipq.enqueue("ask")
    seen: list[Any] = []

    def look() -> None:
        seen.append(Worker.objects.exclude(source="NONE").values("source", "state").get())
        seen.append(hipq.explain(job)[0].code)

    mailbox.when_empty = look

    process = consume()

    assert seen == [{"source": "post", "state": "running"}, "no_worker"]
    process.worker.refresh_from_db()
    assert process.worker.state == "stopped"


def test_a_consumer_that_was_given_up_goes_on_as_a_new_one(
    mailbox: Mailbox, consume: Consume, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(1)
    mailbox.put(response(0))
    real = ConsumerProcess._register

    def register(self: ConsumerProcess) -> None:
        real(self)
        if Worker.objects.exclude(source="NONE").count() == 1:
            self.worker.state = Worker.State.LOST
            self.worker.save()

    monkeypatch.setattr(ConsumerProcess, "_register", register)
    monkeypatch.setattr("hipq_django.processes.heartbeat.Heartbeat.is_fresh", lambda self: False)

    consume()

    states = Worker.objects.exclude(source="NONE").order_by("pk").values_list("state", flat=True)
    assert list(states) == ["lost", "stopped"]
    assert results() == [0]


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_a_consumer_of_another_instance_works_in_its_database(
    mailbox: Mailbox, settings: Settings
) -> None:
    source = {"SOURCE": "tests.mailbox.MailboxSource", "MAP": "tests.mailbox.read"}
    settings.HIPQ = {"other": {"DATABASE": "other", "ENGINE": ENGINE, "SOURCES": {"post": source}}}
    mailbox.put(response(0), b"{")
    process = ConsumerProcess("post", "other")
    mailbox.stop = process.stop

    process.run()

    kept = Answer.objects.using("other").values_list("instance", "kind", "status")
    assert set(kept) == {("other", "response", "early"), ("other", "malformed", "unmatched")}
    assert Worker.objects.using("other").exclude(source="NONE").get().state == "stopped"
    assert not Answer.objects.using("default").exists()


def test_what_makes_no_source_ends_the_process_at_once(mailbox: Mailbox, consume: Consume) -> None:
    with pytest.raises(ConfigurationError, match="unexpected keyword argument 'speed'"):
        consume(OPTIONS={"speed": 5})

    assert mailbox.opened == 0
