"""The webhook view: what partners with a format of their own send, and what they are told."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

import pytest
from django.db import connections, transaction
from django.http import HttpRequest, JsonResponse
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.models import Answer, Job
from hipq_django.web.receiving import ReceivingView
from tests.declaring import Declare
from tests.integration.webhooks import (
    FORMAT,
    SECRET,
    Partner,
    everything,
    failed,
    signature,
    succeeded,
)
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db


@pytest.fixture
def partner(settings: Settings) -> Partner:
    partner = Partner(settings)
    partner.serve()
    return partner


def asked(key: str = "order-1", job_type: str = "ask") -> Job:
    """Return a job that waits for its answer."""
    job = hipq.enqueue(job_type, job_key=key)
    run_due_jobs()
    return job


# Answers


BEFORE: dict[str, Callable[[Partner, Job], Any]] = {
    "asked": lambda partner, job: None,
    "answered": lambda partner, job: partner.send(succeeded(42, receipt="R-1")),
    "cancelled": lambda partner, job: hipq.cancel(job),
}


@pytest.mark.conformance
@pytest.mark.parametrize(
    ("before", "event", "status", "end"),
    [
        ("asked", succeeded(42, receipt="R-1"), "accepted", ("succeeded", "R-1")),
        ("asked", failed(42, reason={"code": 7}), "accepted", ("NONE", {"code": 7})),
        ("asked", {"type": "ping"}, "ignored", ("NONE", None)),
        ("answered", succeeded(42, receipt="R-1"), "duplicate", ("succeeded", "R-1")),
        ("cancelled", succeeded(42), "late", ("cancelled", "Cancelled")),
    ],
)
def test_what_a_message_does_and_what_its_sender_is_told(
    partner: Partner, before: str, event: Any, status: str, end: tuple[str, Any]
) -> None:
    """The key is a number in the message."""
    job = asked("42")
    BEFORE[before](partner, job)
    known = Answer.objects.count()

    assert partner.is_told(event) == (200, {"status": status})

    job.refresh_from_db()
    said = job.result if job.error == "NONE" else job.error
    assert (job.outcome, said) == end
    assert Answer.objects.count() == known + (status != "ignored")


def test_each_part_may_be_a_function(partner: Partner) -> None:
    partner.serve(
        job_type=lambda event: event["data"]["kind"],
        key=lambda event: f"order-{event['data']['order']}",
        message_id=lambda event: f"{event['type']}/{event['id']}",
    )
    job = asked()

    assert partner.is_told(succeeded(1, kind="ask")) == (200, {"status": "accepted"})

    job.refresh_from_db()
    assert job.outcome == "succeeded"
    assert Answer.objects.get().message_id == "charge.succeeded/evt-1"


class BankView(hipq.WebhookView):
    """A partner whose message has its id in a header."""

    job_type = "ask"
    verify = hipq.StripeSignature(SECRET)

    def key(self, event: Any) -> Any:
        """Read the key."""
        return event["data"]["order"]

    def outcome(self, event: Any) -> Any:
        """Read the outcome."""
        return hipq.Response(event["data"].get("receipt"))

    def message_id(self, event: Any) -> Any:
        """Return the header that has the id."""
        return self.request.headers["X-Delivery"]


def test_a_subclass_may_read_headers(partner: Partner) -> None:
    partner.serve(BankView.as_view())
    job = asked()

    assert partner.is_told(succeeded(receipt="R-1"), X_Delivery="d-1")[0] == 200
    assert partner.is_told(succeeded(receipt="R-1"))[0] == 400

    job.refresh_from_db()
    assert (job.result, Answer.objects.get().message_id) == ("R-1", "d-1")


def test_a_body_need_not_be_json(partner: Partner) -> None:
    def read_form(body: bytes) -> dict[str, str]:
        fields = parse_qs(body.decode(), strict_parsing=True)
        return {name: values[0] for name, values in fields.items()}

    partner.serve(parse=read_form, key="order", outcome=lambda form: hipq.Response(form["paid"]))
    job = asked()

    assert partner.is_told(b"order=order-1&paid=yes") == (200, {"status": "accepted"})
    assert partner.is_told(b"order")[0] == 400

    job.refresh_from_db()
    assert job.result == "yes"


@pytest.mark.conformance
@pytest.mark.django_db(databases=["default", "other"])
def test_a_job_of_another_instance_can_be_answered(partner: Partner) -> None:
    partner.serve(instance="other")
    job = hipq.enqueue("ask", job_key="order-1", instance="other")
    run_due_jobs(instance="other")

    partner.is_told(succeeded())

    job.refresh_from_db()
    assert Answer.objects.using("other").get().instance == "other"


@pytest.mark.conformance
def test_a_message_for_a_job_type_that_nobody_knows_is_stored(partner: Partner) -> None:
    partner.serve(job_type=lambda event: "no such type")

    assert partner.is_told(succeeded()) == (200, {"status": "early"})

    assert Answer.objects.get().job_type == "no such type"


# Forged


def test_a_forged_message_is_forbidden_and_changes_nothing(partner: Partner) -> None:
    asked()
    before = everything()
    body = json.dumps(succeeded()).encode()

    replies = [
        partner.is_told(body, Stripe_Signature=header)
        for header in (
            "",
            "t=1,v1=x",
            signature(body + b" "),
            signature(body, secret="another"),
            signature(body, at=1_000_000_000),
        )
    ]

    assert [status for status, _ in replies] == [403] * 5
    assert "seconds old" in replies[-1][1]["error"]
    assert everything() == before


def test_a_forged_message_is_not_read(partner: Partner) -> None:
    partner.serve(parse=lambda body: pytest.fail("read before it was verified"))

    assert partner.is_told(b"\xff", Stripe_Signature="t=1,v1=x")[0] == 403


def test_only_true_is_authentic(partner: Partner) -> None:
    for result in (None, False, 0, 1, "yes", object()):
        partner.serve(verify=lambda request, result=result: result)
        told = partner.is_told(succeeded())
        assert told == (403, {"error": "the message is not authentic."}), result

    assert Answer.objects.count() == 0


def test_a_verifier_that_raises_lets_nobody_in(partner: Partner) -> None:
    partner.serve(verify=lambda request: request.headers["X-Token"] == "x")

    assert partner.is_told(succeeded(), X_Token="x")[0] == 200
    assert partner.is_told(succeeded()) == (
        403,
        {"error": "the message cannot be verified: KeyError."},
    )


# Malformed

BIG_KEY = "x" * 300
MALFORMED: list[Any] = [
    *(b"", b"paid", b"{", b"\xff\xfe", b"[]", b"null", b"5", b'"x"', b"{}", b'{"type": NaN}'),
    *(b'\xff\xfe{"type": "ping"}', b"[" * 900, b'{"type": 1' + b"0" * 5_000 + b"}"),
    *({"type": "charge.succeeded"}, {"type": "charge.failed", "data": {}}),
    *(succeeded(""), succeeded(None), succeeded("NONE"), succeeded("a\nb"), succeeded("a\0b")),
    *(succeeded("\ud800"), succeeded([]), succeeded({}), succeeded(1.5), succeeded(True)),
    *(succeeded(BIG_KEY), succeeded(10**300), succeeded(receipt="\0"), succeeded(receipt="\ud800")),
    *(failed(reason=None), failed(reason=""), failed(reason="NONE")),
]


def test_a_malformed_message_is_refused_and_changes_nothing(
    partner: Partner, caplog: pytest.LogCaptureFixture
) -> None:
    asked()
    before = everything()

    for message in MALFORMED:
        caplog.clear()
        status, reply = partner.is_told(message)

        assert (status, list(reply)) == (400, ["error"]), message
        assert everything() == before, message
        [line] = [r.getMessage() for r in caplog.records if r.name == "hipq_django"]
        assert line.startswith("event=request_refused route=hooks/bank/ status=400 error=")


def test_a_reason_names_the_part_and_what_is_wrong(partner: Partner) -> None:
    assert partner.is_told({"type": "charge.succeeded", "data": {}})[1] == {
        "error": "the key cannot be read from the message at 'data.order': KeyError."
    }
    assert partner.is_told({})[1] == {
        "error": "the outcome cannot be read from the message: KeyError."
    }
    assert "a key is text of 1 to 255" in partner.is_told(succeeded(""))[1]["error"]
    assert partner.is_told(b"\xff")[1] == {"error": "the body is not JSON in UTF-8."}
    deep = partner.is_told(b"[" * 100_000)[1]
    assert deep == {"error": "the body is JSON that is nested too deeply."}


@pytest.mark.parametrize("size", [1_001, 3_000_000])
def test_a_message_that_is_too_large_is_refused(
    partner: Partner, settings: Settings, size: int
) -> None:
    settings.HIPQ = {"default": {"CALLBACK_MAX_BYTES": 1_000}}
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = None
    before = everything()

    assert partner.is_told(b"x" * size) == (413, {"error": "the body is larger than 1000 bytes."})

    assert everything() == before


def test_an_outcome_of_another_kind_is_refused(partner: Partner) -> None:
    for result in ({"paid": True}, "paid", hipq.Response, 0, False):
        partner.serve(outcome=lambda event, result=result: result)
        status, reply = partner.is_told(succeeded())

        assert (status, Answer.objects.count()) == (400, 0), result
        assert "return Response(…), ErrorResponse(…), or None" in reply["error"]


@pytest.mark.conformance
def test_a_message_id_that_cannot_be_stored_is_refused(partner: Partner) -> None:
    partner.serve(message_id="id")

    for message_id in ("", "x" * 256, 5.0, "a\0b"):
        assert partner.is_told({**succeeded(), "id": message_id})[0] == 400, message_id
        assert not Answer.objects.exists()
    assert partner.is_told({**succeeded(), "id": None})[0] == 200


def test_a_function_may_say_itself_what_is_wrong(partner: Partner) -> None:
    def read_key(event: Any) -> Any:
        raise hipq.InvalidAnswerError("order numbers begin with 'order-'")

    partner.serve(key=read_key)

    assert partner.is_told(succeeded()) == (400, {"error": "order numbers begin with 'order-'"})


# Outages


def test_a_secret_that_cannot_be_had_is_not_the_fault_of_the_message(
    partner: Partner, caplog: pytest.LogCaptureFixture
) -> None:
    def ask() -> str:
        raise OSError("vault refused token hunter2")

    partner.serve(verify=hipq.StripeSignature(ask))

    response = partner.send(succeeded())

    assert (response.status_code, Answer.objects.count()) == (503, 0)
    assert "raised OSError" in caplog.text
    assert "hunter2" not in caplog.text + response.content.decode()


@pytest.mark.conformance
def test_the_answer_is_committed_before_it_is_confirmed(
    partner: Partner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connections.settings["default"], "ATOMIC_REQUESTS", True)
    blocks: list[int] = []

    def count_blocks(event: Any) -> hipq.Response:
        blocks.append(len(connections["default"].savepoint_ids))
        return hipq.Response()

    partner.serve(outcome=count_blocks)
    outside = len(connections["default"].savepoint_ids)

    assert partner.is_told(succeeded())[0] == 200
    assert blocks == [outside]


@pytest.mark.conformance
@pytest.mark.postgres
def test_what_the_database_cannot_store_is_the_fault_of_the_message(partner: Partner) -> None:
    class Odd(ReceivingView):
        def receive(self, request: HttpRequest, **_: Any) -> JsonResponse:
            with transaction.atomic(), connections["default"].cursor() as cursor:
                cursor.execute("SELECT '1e999'::float")
            return JsonResponse({})

    partner.serve(Odd.as_view())

    assert partner.is_told({}) == (400, {"error": "the database cannot store the message."})


# The log


def test_neither_secrets_nor_content_are_logged(
    partner: Partner, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    partner.serve(verify=hipq.SharedSecret("X-Hook", SECRET))
    asked()

    good = succeeded(receipt="private-1")
    for event in (good, succeeded("private\n2"), {"private-3": 1}, b"private-4"):
        partner.send(event, X_Hook=SECRET)
        partner.send(event, X_Hook="private-5")

    assert "status=400" in caplog.text
    assert "status=403" in caplog.text
    assert SECRET not in caplog.text
    assert "private" not in caplog.text


def test_a_refusal_is_logged_with_the_place_in_the_code(
    partner: Partner, caplog: pytest.LogCaptureFixture
) -> None:
    partner.serve(key=lambda event: event["no such field"])

    partner.send(succeeded())

    assert "route=hooks/bank/ status=400 error=KeyError at=test_webhook.py:" in caplog.text


# What is wrong is found at the start


@pytest.mark.parametrize("option", ["job_type", "key", "outcome", "verify"])
def test_a_part_that_is_missing_is_refused_at_the_start(option: str) -> None:
    options = {name: value for name, value in FORMAT.items() if name != option}

    with pytest.raises(hipq.ConfigurationError, match=f"WebhookView: {option} is missing; give"):
        hipq.WebhookView.as_view(**options)


async def _reader(payload: Any) -> str:
    return "key"


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"job_type": ""}, "1 to 200 printable characters"),
    ({"job_type": 5}, "job_type is 5; give the name of a job type"),
    ({"key": "data..order"}, "key is 'data..order'"),
    ({"key": _reader}, "key is <function"),
    ({"outcome": "data"}, "outcome is 'data'; give a function"),
    ({"message_id": 5}, "message_id is 5"),
    ({"verify": "secret"}, "verify is of type str; give a function"),
    ({"verify": _reader}, "verify is of type function; give a function"),
    ({"instance": "oter"}, "HIPQ has no instance 'oter', did you mean 'other'"),
]


def test_a_part_of_another_kind_is_refused_at_the_start() -> None:
    for options, reason in WRONG:
        with pytest.raises(hipq.ConfigurationError, match=re.escape(reason)):
            hipq.WebhookView.as_view(**{**FORMAT, **options})


def test_a_declaration_is_no_name(declare: Declare) -> None:
    charge = declare("charge")(lambda job: None)

    with pytest.raises(hipq.ConfigurationError, match="give its name, 'charge'"):
        hipq.WebhookView.as_view(**{**FORMAT, "job_type": charge})


def test_an_unknown_option_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(hipq.UnknownOptionError, match="'verifier', did you mean 'verify'"):
        hipq.WebhookView.as_view(**FORMAT, verifier=hipq.NoVerification())
