"""Verifiers: they check who sent a webhook message.

A verifier is a callable that takes the request and returns True for an authentic one; any other
value, or an exception, refuses it. The verifiers of this package compare in constant time and never
show their secrets.

A verifier may also have a method `message_id`, which takes an authentic request and returns the
id of its message. The view uses it if the project gave no `message_id`, so that a repeated message
is recognized. The id is made only from signed parts, because anyone who sends a message again can
change the rest.
"""

from hipq_django.web.verifiers.shared import (
    NoVerification as NoVerification,
    SharedSecret as SharedSecret,
)
from hipq_django.web.verifiers.timed import (
    SlackSignature as SlackSignature,
    StandardWebhooksSignature as StandardWebhooksSignature,
    StripeSignature as StripeSignature,
)
from hipq_django.web.verifiers.untimed import (
    GitHubSignature as GitHubSignature,
    ShopifySignature as ShopifySignature,
)
