"""A partner that sends webhook messages in a format of its own, and what it is told."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from dataclasses import dataclass, field
from typing import Any

from django.test import Client
from django.urls import path
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.models import Answer, Job
from tests import urls

SECRET = "whsec_for_tests"
ADDRESS = "/hooks/bank/"


def outcome(event: Any) -> Any:
    """Read what the bank says of a charge; None for an event of another kind."""
    if event["type"] == "charge.succeeded":
        return hipq.Response(event["data"].get("receipt"))
    if event["type"] == "charge.failed":
        return hipq.ErrorResponse(event["data"]["reason"])
    return None


FORMAT: dict[str, Any] = {
    "job_type": "ask",
    "key": "data.order",
    "outcome": outcome,
    "verify": hipq.StripeSignature(SECRET),
}


@dataclass
class Partner:
    """Sends signed messages through Django's test client."""

    settings: Settings
    client: Any = field(default_factory=lambda: Client(enforce_csrf_checks=True))

    def serve(self, view: Any = None, **options: Any) -> None:
        """Put the webhook view, with the usual format and these options, at its address."""
        view = view or hipq.WebhookView.as_view(**{**FORMAT, **options})

        class Urls:
            urlpatterns = [*urls.urlpatterns, path(ADDRESS[1:], view)]

        self.settings.ROOT_URLCONF = Urls

    def send(self, event: Any, **headers: str) -> Any:
        """POST the event, as JSON unless it is bytes; signed unless headers say otherwise."""
        body = event if isinstance(event, bytes) else json.dumps(event).encode()
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        headers.setdefault("Stripe-Signature", signature(body))
        return self.client.post(ADDRESS, body, content_type="application/json", headers=headers)

    def is_told(self, event: Any, **headers: str) -> tuple[int, Any]:
        """POST the event; return the status and the content of the reply."""
        response = self.send(event, **headers)
        return response.status_code, json.loads(response.content)


def signature(body: bytes, at: float | None = None, secret: str = SECRET) -> str:
    """Return the header that signs a body, at this moment unless another one is given."""
    moment = int(time.time() if at is None else at)
    digest = hmac.new(secret.encode(), f"{moment}.".encode() + body, hashlib.sha256)
    return f"t={moment},v1={digest.hexdigest()}"


def succeeded(order: Any = "order-1", **data: Any) -> dict[str, Any]:
    """Return the event of a charge that succeeded."""
    return {"type": "charge.succeeded", "id": "evt-1", "data": {"order": order, **data}}


def failed(order: Any = "order-1", reason: Any = "declined") -> dict[str, Any]:
    """Return the event of a charge that failed."""
    return {"type": "charge.failed", "id": "evt-2", "data": {"order": order, "reason": reason}}


def everything() -> list[Any]:
    """Return all rows that a message could change."""
    return [list(model.objects.order_by("pk").values()) for model in (Job, Answer)]
