"""The page about webhooks: its code, as written, in a project made by `startproject`."""

from __future__ import annotations

import pytest

from hipq_django.web import receiving
from tests.conftest import ROOT
from tests.docs.documents import Block, Document
from tests.docs.project import FreshProject

WEBHOOKS = Document(ROOT / "docs" / "webhooks.md")


@pytest.mark.processes
def test_the_code_of_the_page_works(fresh_project: FreshProject) -> None:
    fresh_project.create("shop")
    fresh_project.write([block for block in WEBHOOKS.blocks() if block.language == "python"])
    fresh_project.write([Block("python", PARTNERS)])

    output = fresh_project.manage("test", "shop")
    assert "Ran 10 tests" in output
    assert "OK" in output


PARTNERS = """# shop/test_partners.py
import json
import time
from urllib.parse import urlencode

from django.conf import settings
from django.test import TestCase
from hipq_django.models import Answer
from tests.signing import slack_headers, standard_headers


class PartnersTest(TestCase):
    def send(self, address, body, headers):
        reply = self.client.post(f"/webhooks/{address}/", body, "text/plain", headers=headers)
        return reply.json()

    def test_standard_webhooks(self):
        data = {"order": "order-42", "pages": 7}
        body = json.dumps({"type": "book.printed", "data": data}).encode()
        secret = settings.PRINTER_WEBHOOK_SECRETS[0]
        headers = standard_headers(body, int(time.time()), secret=secret)
        self.assertEqual(self.send("printer", body, headers), {"status": "early"})
        answer = Answer.objects.get()
        self.assertEqual((answer.job_key, answer.payload), ("order-42", {"pages": 7}))
        self.assertEqual(answer.message_id, "msg_1")

    def test_buttons_of_slack(self):
        action = {"action_id": "approve", "value": "order-42"}
        press = {"type": "block_actions", "actions": [action], "user": {"id": "U1"}}
        body = urlencode({"payload": json.dumps(press)}).encode()
        secret = settings.SLACK_SIGNING_SECRETS[0]
        headers = slack_headers(body, int(time.time()), secret=secret)
        self.assertEqual(self.send("slack/buttons", body, headers), {"status": "early"})
        answer = Answer.objects.get()
        self.assertEqual(answer.job_key, "order-42")
        self.assertEqual(answer.payload, {"approved": True, "by": "U1"})

    def slack_event(self, event):
        body = json.dumps(event).encode()
        secret = settings.SLACK_SIGNING_SECRETS[0]
        headers = slack_headers(body, int(time.time()), secret=secret)
        return self.send("slack/events", body, headers)

    def test_events_of_slack(self):
        event = {"type": "message", "thread_ts": "171.0001", "text": "yes"}
        event = {"type": "event_callback", "event_id": "Ev1", "event": event}
        self.assertEqual(self.slack_event(event), {"status": "early"})
        answer = Answer.objects.get()
        self.assertEqual((answer.job_key, answer.message_id), ("171.0001", "Ev1"))

    def test_the_challenge_of_slack(self):
        event = {"type": "url_verification", "challenge": "3eZ"}
        self.assertEqual(self.slack_event(event), {"challenge": "3eZ"})
        reply = self.client.post("/webhooks/slack/events/", json.dumps(event), "text/plain")
        self.assertEqual(reply.status_code, 403)
"""


def test_the_wait_before_the_next_try_is_that_of_the_code() -> None:
    assert f"try again in {receiving.RETRY_AFTER_SECONDS} seconds" in WEBHOOKS.text
