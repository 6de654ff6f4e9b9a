"""Verifiers: whether a webhook message comes from whom it says.

A verifier is a callable that takes the request and returns True for an authentic one; anything
else, or an exception, refuses it. Those of this package compare in constant time and show their
secrets nowhere.

A verifier may also have a method `message_id`, which takes an authentic request and returns the
id of its message. The view uses it where the project gave no `message_id` of its own, so that a
message that is sent again is known. What it returns is made of nothing but what is signed: the
rest of a request can be changed by whoever sends it again.
"""

from hipq_django.web.verifiers.shared import NoVerification, SharedSecret
from hipq_django.web.verifiers.timed import (
    SlackSignature,
    StandardWebhooksSignature,
    StripeSignature,
)
from hipq_django.web.verifiers.untimed import GitHubSignature, ShopifySignature

__all__ = [
    "GitHubSignature",
    "NoVerification",
    "SharedSecret",
    "ShopifySignature",
    "SlackSignature",
    "StandardWebhooksSignature",
    "StripeSignature",
]
