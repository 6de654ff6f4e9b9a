"""How partners sign their messages: the headers that each of them sends with a body."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from typing import Any

STANDARD_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SLACK_SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
SHOPIFY_SECRET = "hush"
STRIPE_SECRET = "whsec_c2VjcmV0"


def standard_headers(
    body: bytes, at: Any, *, message: str = "msg_1", secret: str = STANDARD_SECRET
) -> dict[str, str]:
    """Return the headers of a message by Standard Webhooks."""
    key = b64decode(secret.removeprefix("whsec_"))
    digest = hmac.digest(key, f"{message}.{at}.".encode() + body, "sha256")
    return {
        "webhook-id": message,
        "webhook-timestamp": str(at),
        "webhook-signature": f"v1,{b64encode(digest).decode()}",
    }


def slack_headers(body: bytes, at: Any, *, secret: str = SLACK_SECRET) -> dict[str, str]:
    """Return the headers of a message from Slack."""
    digest = hmac.new(secret.encode(), f"v0:{at}:".encode() + body, hashlib.sha256)
    return {
        "X-Slack-Request-Timestamp": str(at),
        "X-Slack-Signature": f"v0={digest.hexdigest()}",
    }


def shopify_headers(body: bytes, *, secret: str = SHOPIFY_SECRET) -> dict[str, str]:
    """Return the header of a message from Shopify."""
    digest = hmac.digest(secret.encode(), body, "sha256")
    return {"X-Shopify-Hmac-Sha256": b64encode(digest).decode()}


def stripe_headers(body: bytes, at: Any, *, secret: str = STRIPE_SECRET) -> dict[str, str]:
    """Return the header of a message from Stripe."""
    digest = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256)
    return {"Stripe-Signature": f"t={at},v1={digest.hexdigest()}"}


def github_headers(body: bytes, *, secret: str = STRIPE_SECRET) -> dict[str, str]:
    """Return the header of a message from GitHub."""
    digest = hmac.new(secret.encode(), body, hashlib.sha256)
    return {"X-Hub-Signature-256": f"sha256={digest.hexdigest()}"}
