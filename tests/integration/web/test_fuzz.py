"""Whatever is sent to the callback and to a webhook: never a 500, and a refusal changes nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client
from hypothesis import HealthCheck, given, settings, strategies as st
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.answers.callback_urls import Token
from hipq_django.models import Job
from tests.integration.webhooks import ADDRESS, Partner, everything, signature
from tests.rolling_back import rolled_back
from tests.running import run_due_jobs

STORED, GONE = 200, 410
REFUSED = {400, 403, 404, 405, 413}

# Each example is rolled back, so that the rows of the fixture are as good as new.
fuzzed = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
strange = st.sampled_from(["\ud800", "\0", "NONE", "", 10**400, 1e308, "x" * 300, "\u202e", "\n"])
json_values = st.recursive(
    scalars | strange,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
keys = st.just("order-1") | strange | scalars
bodies = (
    st.binary(max_size=100)
    | json_values.map(lambda value: json.dumps(value).encode())
    | json_values.map(
        lambda value: json.dumps(value, ensure_ascii=False).encode("utf-16", "replace")
    )
    | st.integers(1, 3_000).map(lambda depth: b"[" * depth + b"]" * depth)
)
forms = st.dictionaries(
    st.sampled_from(["response", "error", "other"]), json_values, min_size=1, max_size=2
)
answers = st.one_of(bodies, *[forms.map(lambda value: json.dumps(value).encode())] * 3)
charges = st.fixed_dictionaries(
    {"order": keys}, optional={"receipt": json_values, "reason": json_values}
)
events = bodies | st.fixed_dictionaries(
    {
        "type": st.sampled_from(["charge.succeeded", "charge.failed", "ping"]) | json_values,
        "id": keys,
        "data": charges | json_values,
    }
).map(lambda value: json.dumps(value).encode())
content_types = st.sampled_from(
    ["application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]
)
methods = st.sampled_from(["POST"] * 9 + ["GET", "PUT", "HEAD", "TRACE", "X-ODD"])


def check(status: int, content: bytes, before: list[Any], method: str = "POST") -> None:
    """Fail unless the reply is one of those that are documented, and true."""
    assert status in {STORED, GONE, *REFUSED}, content
    if status in REFUSED:
        assert everything() == before
    if method == "POST" and status != 404:
        assert list(json.loads(content)) == ["status" if status in (STORED, GONE) else "error"]


@pytest.fixture
def job(db: None) -> Job:
    """A job that waits for its answer."""
    job = hipq.enqueue("ask", job_key="order-1")
    run_due_jobs()
    return job


@pytest.fixture
def partner(job: Job, settings: Settings) -> Partner:
    partner = Partner(settings)
    partner.serve(message_id="id")
    return partner


@pytest.mark.conformance
@fuzzed
@given(body=answers, content_type=content_types, method=methods)
def test_a_callback_with_any_content(job: Job, body: bytes, content_type: str, method: str) -> None:
    url = f"/hipq/callback/{Token('default', job.pk, 1).sign()}/"
    before = everything()

    with rolled_back():
        response = Client().generic(method, url, body, content_type=content_type)
        check(response.status_code, response.content, before, method)


@pytest.mark.conformance
@fuzzed
@given(body=events, content_type=content_types, method=methods)
def test_a_webhook_with_any_content(
    partner: Partner, body: bytes, content_type: str, method: str
) -> None:
    before = everything()

    with rolled_back():
        response = Client().generic(
            method,
            ADDRESS,
            body,
            content_type=content_type,
            headers={"Stripe-Signature": signature(body)},
        )
        check(response.status_code, response.content, before, method)
