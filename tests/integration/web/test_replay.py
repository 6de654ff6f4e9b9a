"""A message that is sent again, by its partner or by somebody who overheard it, acts once."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from pytest_django import Settings
from pytest_django.live_server_helper import LiveServer

import hipq_django as hipq
from hipq_django.models import Answer, Job
from tests.declaring import Declare
from tests.integration.webhooks import ADDRESS, Partner, failed
from tests.running import run_due_jobs
from tests.signing import (
    SHOPIFY_SECRET,
    SLACK_SECRET,
    STANDARD_SECRET,
    shopify_headers,
    slack_headers,
    standard_headers,
)

pytestmark = pytest.mark.django_db

PARTNERS: dict[str, tuple[Any, Any]] = {
    "standard": (hipq.StandardWebhooksSignature(STANDARD_SECRET), standard_headers),
    "slack": (hipq.SlackSignature(SLACK_SECRET), slack_headers),
    "shopify": (hipq.ShopifySignature(SHOPIFY_SECRET), lambda body, at: shopify_headers(body)),
}


@dataclass
class Sender:
    """Signs as one of the partners does, and sends through Django's test client."""

    partner: Partner
    name: str

    def __call__(self, event: Any, at: float | None = None, **more: str) -> tuple[int, Any]:
        """Send the event; return the status and the content of the reply."""
        body = json.dumps(event).encode()
        headers = PARTNERS[self.name][1](body, int(time.time() if at is None else at)) | more
        response = self.partner.client.post(ADDRESS, body, "application/json", headers=headers)
        return response.status_code, json.loads(response.content)


@pytest.fixture(params=list(PARTNERS))
def send(request: pytest.FixtureRequest, settings: Settings, declare: Declare) -> Sender:
    """A partner whose errors are tried again at once, and no `message_id`."""
    declare("charge", retry=hipq.Fixed(seconds=0))(lambda job: hipq.WAIT)
    partner = Partner(settings)
    partner.serve(job_type="charge", verify=PARTNERS[request.param][0])
    return Sender(partner, request.param)


def charged(key: str = "order-1") -> Job:
    """Enqueue a job that waits for its answer."""
    job = hipq.enqueue("charge", job_key=key)
    run_due_jobs()
    return job


@pytest.mark.conformance
def test_a_replayed_error_does_not_fail_the_next_attempt(send: Sender) -> None:
    job, now = charged(), time.time()
    assert send(failed(), now) == (200, {"status": "accepted"})
    run_due_jobs()

    assert send(failed(), now) == (200, {"status": "accepted"})

    job.refresh_from_db()
    assert (job.state, job.attempt, Answer.objects.count()) == ("running", 2, 1)


def test_a_replay_may_not_change_what_is_not_signed(send: Sender) -> None:
    job, now = charged(), time.time()
    send(failed(), now, **{"X-Shopify-Event-Id": "1", "X-Slack-Retry-Num": "1"})
    run_due_jobs()

    send(failed(), now, **{"X-Shopify-Event-Id": "2", "X-Slack-Retry-Num": "2"})

    job.refresh_from_db()
    assert (job.state, job.attempt) == ("running", 2)


def test_the_same_id_with_another_time_is_the_same_message(
    settings: Settings, declare: Declare
) -> None:
    """So Standard Webhooks retries what was not confirmed."""
    declare("charge", retry=hipq.Fixed(seconds=0))(lambda job: hipq.WAIT)
    partner = Partner(settings)
    partner.serve(job_type="charge", verify=PARTNERS["standard"][0])
    send, job = Sender(partner, "standard"), charged()
    send(failed(), time.time() - 60)
    run_due_jobs()

    assert send(failed(), time.time()) == (200, {"status": "accepted"})

    job.refresh_from_db()
    assert (job.state, job.attempt, Answer.objects.count()) == ("running", 2, 1)


# Over HTTP, as servers hand headers over


@pytest.fixture
def overheard(settings: Settings, live_server: LiveServer) -> Any:
    """Send a body with these headers to a real server; return the status."""

    def post(body: bytes, headers: dict[str, str]) -> int:
        request = Request(f"{live_server.url}{ADDRESS}", body, headers)
        try:
            with urlopen(request, timeout=30) as response:
                return int(response.status)
        except HTTPError as error:
            return error.code

    return post


@pytest.mark.conformance
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", list(PARTNERS))
def test_replays_at_the_same_time_act_once(
    name: str, overheard: Any, settings: Settings, declare: Declare
) -> None:
    declare("charge", retry=hipq.Fixed(seconds=0))(lambda job: hipq.WAIT)
    verifier, sign = PARTNERS[name]
    Partner(settings).serve(job_type="charge", verify=verifier)
    job, body = charged(), json.dumps(failed()).encode()
    headers, statuses = sign(body, int(time.time())), []

    threads = [
        threading.Thread(target=lambda: statuses.append(overheard(body, headers))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run_due_jobs()
    statuses.append(overheard(body, headers))

    job.refresh_from_db()
    assert statuses == [200] * 5
    assert (job.state, job.attempt, Answer.objects.count()) == ("running", 2, 1)
    assert overheard(body + b" ", headers) == 403
