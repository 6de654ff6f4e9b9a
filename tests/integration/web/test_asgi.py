"""Callback and webhook behind an ASGI server: what it hands over is taken as under WSGI."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from asgiref.testing import ApplicationCommunicator
from django.core.asgi import get_asgi_application
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.answers.callback_urls import Token
from hipq_django.models import Job
from tests.integration.webhooks import ADDRESS, Partner, signature, succeeded
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db(transaction=True)

CHUNK = 65_536


@pytest.fixture(autouse=True)
def _webhook(settings: Settings) -> None:
    Partner(settings).serve()


@pytest.fixture
def job(transactional_db: None) -> Job:
    """A job that waits for its answer."""
    job = hipq.enqueue("ask", job_key="order-1")
    run_due_jobs()
    return job


def chunks(body: bytes) -> Iterator[dict[str, Any]]:
    """Return the messages in which a server hands over a body that came in pieces."""
    for start in range(0, len(body), CHUNK):
        yield {"type": "http.request", "body": body[start : start + CHUNK], "more_body": True}
    yield {"type": "http.request", "body": b"", "more_body": False}


@async_to_sync
async def post(path: str, body: bytes, **headers: str) -> tuple[int, Any]:
    """POST a body whose length no header tells; return status and content of the reply."""
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "query_string": b"",
        "headers": [
            (b"host", b"testserver"),
            *((name.replace("_", "-").lower().encode(), v.encode()) for name, v in headers.items()),
        ],
    }
    server = ApplicationCommunicator(get_asgi_application(), scope)
    for message in chunks(body):
        await server.send_input(message)
    start = await server.receive_output(timeout=30)
    content = await server.receive_output(timeout=30)
    await server.wait(timeout=30)
    return start["status"], json.loads(content["body"])


@pytest.mark.conformance
def test_an_answer_is_taken(job: Job) -> None:
    body = json.dumps(succeeded(receipt="R-1")).encode()

    assert post(ADDRESS, body, Stripe_Signature=signature(body)) == (200, {"status": "accepted"})

    job.refresh_from_db()
    assert job.result == "R-1"


@pytest.mark.parametrize("size", [1_048_577, 2_621_441, 20_000_000])
def test_a_body_is_not_larger_than_the_limit_although_no_header_tells(job: Job, size: int) -> None:
    body = b"x" * size
    callback = f"/hipq/callback/{Token('default', job.pk, 1).sign()}/"

    assert post(ADDRESS, body, Stripe_Signature=signature(body))[0] == 413
    assert post(callback, body)[0] == 413
