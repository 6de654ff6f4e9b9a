"""The webhook view: what partners with a format of their own send, and what they are told."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs

import pytest
from django.db import connections
from django.http import JsonResponse
from django.views.decorators.csrf import csrf_exempt
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.answers.callback_urls import Token
from hipq_django.models import Answer, Job
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


def raises(error: Exception) -> Any:
    """Return a function that raises an error, whatever it is called with."""

    def function(*_: Any) -> Any:
        raise error

    return function


def test_a_forged_message_is_forbidden_and_not_even_read(partner: Partner) -> None:
    asked()
    partner.serve(parse=raises(AssertionError("read before it was verified")))
    before = everything()
    body = json.dumps(succeeded()).encode()

    for header in (
        "",
        "t=1,v1=x",
        signature(body + b" "),
        signature(body, secret="another"),
        signature(body, at=1_000_000_000),
    ):
        assert partner.is_told(body, Stripe_Signature=header)[0] == 403, header
        assert everything() == before


@pytest.mark.parametrize("result", [None, False, 1, "yes", object()])
def test_only_true_is_authentic(partner: Partner, result: object) -> None:
    partner.serve(verify=lambda request: result)

    assert partner.is_told(succeeded()) == (403, {"error": "the message is not authentic."})
    assert Answer.objects.count() == 0


@pytest.mark.parametrize(
    ("verify", "status", "said"),
    [
        (raises(KeyError("hunter2")), 403, "the message cannot be verified: KeyError."),
        (hipq.StripeSignature(raises(OSError("hunter2"))), 503, "is not set up for the message"),
    ],
)
def test_a_verifier_that_raises_lets_nobody_in(
    partner: Partner, caplog: pytest.LogCaptureFixture, verify: Any, status: int, said: str
) -> None:
    partner.serve(verify=verify)

    response = partner.send(succeeded())

    assert (response.status_code, Answer.objects.count()) == (status, 0)
    assert said in response.content.decode()
    assert "hunter2" not in caplog.text + response.content.decode()


# Malformed

ODD_KEYS: list[Any] = ["NONE", [], 1.5, "x" * 300, "a\0b", "\ud800", 10**300]
MALFORMED: list[tuple[Any, str]] = [
    *((body, "is not JSON in UTF-8") for body in (b"", b"{", b"\xff\xfe", b'{"type": NaN}')),
    *((body, "the outcome cannot be read from the message") for body in (b"[]", b"5", b"{}")),
    (b"[" * 100_000, "nested too deeply"),
    ({"type": "charge.succeeded", "data": {}}, "the key cannot be read from the message at 'data."),
    (succeeded(""), "a key is text"),
    *((succeeded(key), "") for key in ODD_KEYS),
    *((succeeded(receipt=value), "") for value in ("\0", "\ud800")),
    *((failed(reason=value), "") for value in (None, "", "NONE")),
    ({**succeeded(), "id": "x" * 256}, "message"),
    ({**succeeded(), "id": 5.0}, "message"),
]


def test_a_malformed_message_is_refused_and_changes_nothing(
    partner: Partner, caplog: pytest.LogCaptureFixture
) -> None:
    partner.serve(message_id=lambda event: event.get("id"))
    asked()
    before = everything()

    for message, says in MALFORMED:
        caplog.clear()
        status, reply = partner.is_told(message)

        assert (status, list(reply)) == (400, ["error"]), message
        assert says in reply["error"], reply
        assert everything() == before, message
        [line] = [r.getMessage() for r in caplog.records if r.name == "hipq_django"]
        assert line.startswith("event=request_refused route=hooks/bank/ status=400 error=")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"outcome": lambda event: {"paid": True}}, "return Response(…), ErrorResponse(…), or No"),
        ({"key": raises(hipq.InvalidAnswerError("not 'order-'"))}, "not 'order-'"),
    ],
)
def test_what_functions_of_the_project_refuse_is_said(
    partner: Partner, options: dict[str, Any], said: str
) -> None:
    partner.serve(**options)

    status, reply = partner.is_told(succeeded())

    assert (status, Answer.objects.count()) == (400, 0)
    assert said in reply["error"]


def test_a_message_that_is_too_large_is_refused(partner: Partner, settings: Settings) -> None:
    settings.HIPQ = {"default": {"CALLBACK_MAX_BYTES": 1_000}}
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = None

    for size in (1_001, 3_000_000):
        told = partner.is_told(b"x" * size)
        assert told == (413, {"error": "the body is larger than 1000 bytes."})


# Commits and log-ins


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


LOG_IN = "django.contrib.auth.middleware.LoginRequiredMiddleware"


def test_a_partner_needs_no_log_in_and_no_csrf_token(partner: Partner, settings: Settings) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, LOG_IN]
    callback = f"/hipq/callback/{Token('default', asked().pk, 1).sign()}/"
    answer = {"response": 1}

    assert partner.is_told(succeeded("another")) == (200, {"status": "early"})
    response = partner.client.post(callback, answer, content_type="application/json")
    assert response.status_code == 200
    partner.serve(csrf_exempt(lambda request: JsonResponse({})))
    assert partner.send(succeeded()).status_code == 302  # any other view


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


# What is wrong is found at the start


async def _reader(payload: Any) -> str:
    return "key"


WRONG: list[tuple[dict[str, Any], str]] = [
    *(({name: None}, f"WebhookView: {name} is missing; give") for name in FORMAT),
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


def test_a_part_that_is_missing_or_wrong_is_refused_at_the_start(declare: Declare) -> None:
    charge = declare("charge")(lambda job: None)
    for options, reason in [*WRONG, ({"job_type": charge}, "give its name, 'charge'")]:
        with pytest.raises(hipq.ConfigurationError, match=re.escape(reason)):
            hipq.WebhookView.as_view(**{**FORMAT, **options})
    with pytest.raises(hipq.UnknownOptionError, match="'verifier', did you mean 'verify'"):
        hipq.WebhookView.as_view(**FORMAT, verifier=hipq.NoVerification())
