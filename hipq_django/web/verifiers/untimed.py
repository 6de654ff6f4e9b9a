"""Verifiers of signatures of the body alone, which stay valid for ever."""

from __future__ import annotations

from base64 import b64encode

from django.http import HttpRequest

from hipq_django.exceptions import ForgedWebhookError
from hipq_django.web.verifiers.secrets import Secrets, SecretValues
from hipq_django.web.verifiers.signatures import (
    check_one_matches,
    checked_header,
    digests,
    fingerprint,
    header_of,
    hex_digests,
)


class GitHubSignature:
    """HMAC-SHA256 of the raw body, as `sha256=5257a8…` in a header.

    It has no time, so an intercepted message can be sent again: give the view a `message_id`.
    `prefix` comes before the hexadecimal digits. `secret` as for `StripeSignature`.
    """

    def __init__(
        self, secret: Secrets, *, header: str = "X-Hub-Signature-256", prefix: str = "sha256="
    ) -> None:
        self._secrets = SecretValues(type(self).__name__, secret)
        self._header = checked_header(type(self).__name__, header)
        self._prefix = prefix

    def __call__(self, request: HttpRequest) -> bool:
        given = header_of(request, self._header)
        if not given.startswith(self._prefix):
            raise ForgedWebhookError(f"header {self._header} does not begin with {self._prefix!r}.")
        signature = given.removeprefix(self._prefix)
        check_one_matches(hex_digests(self._secrets, request.body), [signature])
        return True

    def __repr__(self) -> str:
        return f"GitHubSignature(…, header={self._header!r}, prefix={self._prefix!r})"


class ShopifySignature:
    """HMAC-SHA256 of the raw body, in base64, as Shopify signs: `header` has nothing else.

    It has no time, and no other header is signed, so the id of a message is made from its body: a
    repeated body is the same message. `secret` as for `StripeSignature`.
    """

    def __init__(self, secret: Secrets, *, header: str = "X-Shopify-Hmac-Sha256") -> None:
        self._secrets = SecretValues(type(self).__name__, secret)
        self._header = checked_header(type(self).__name__, header)

    def __call__(self, request: HttpRequest) -> bool:
        given = header_of(request, self._header)
        expected = [b64encode(digest) for digest in digests(self._secrets, request.body)]
        check_one_matches(expected, [given])
        return True

    def message_id(self, request: HttpRequest) -> str:
        """Return the id of an authentic message, made from its body."""
        return fingerprint(request.body)

    def __repr__(self) -> str:
        return f"ShopifySignature(…, header={self._header!r})"
