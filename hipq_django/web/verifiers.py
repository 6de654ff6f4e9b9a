"""Verifiers: they check who sent a webhook message.

A verifier is a callable that takes the request and returns True for an authentic one; any other
value, or an exception, refuses it. The verifiers of this package compare in constant time and never
show their secrets.

A verifier may also have a method `message_id`, which takes an authentic request and returns the
id of its message. The view uses it if the project gave no `message_id`, so that a repeated message
is recognized. The id is made only from signed parts, because anyone who sends a message again can
change the rest.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from time import time

from django.http import HttpRequest

from hipq_django.domain.validation import MAX_SECONDS, number_in
from hipq_django.exceptions import ConfigurationError, ForgedWebhookError
from hipq_django.web.secrets import Secrets, SecretValues, StandardSecretValues

_HEADER = re.compile(r"[A-Za-z0-9-]+")
_UNIX_SECONDS = re.compile(r"[0-9]{1,12}")


class _Verifier:
    """The secrets of a verifier, the headers that it reads, and how old a signature may be."""

    secret_values: type[SecretValues] = SecretValues

    def __init__(self, secret: Secrets, *headers: str, tolerance: float = 300) -> None:
        self._secrets = self.secret_values(type(self).__name__, secret)
        self._headers = [self._checked_header(name) for name in headers]
        number = number_in(tolerance, 0, MAX_SECONDS)
        if not number:
            raise ConfigurationError(
                f"{type(self).__name__}: tolerance {tolerance!r}: give seconds above 0, at most "
                f"{MAX_SECONDS:,}."
            )
        self._tolerance = number

    def _checked_header(self, name: object) -> str:
        if isinstance(name, str) and _HEADER.fullmatch(name):
            return name
        raise ConfigurationError(
            f"{type(self).__name__}: header {name!r:.200} is not the name of a header; give one "
            "such as 'X-Token'."
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}(…)"

    def _check_signed(
        self, content: bytes, given: Iterable[str], moment: str | None = None, *, base64: bool
    ) -> None:
        """Raise `ForgedWebhookError` unless one of the signatures is that of the content.

        Or if the moment, which is part of the content, is too far away.
        """
        digests = [hmac.digest(secret, content, "sha256") for secret in self._secrets.read()]
        check_one_matches([b64encode(d) if base64 else d.hex().encode() for d in digests], given)
        age = 0 if moment is None else time() - int(moment)
        if abs(age) > self._tolerance:
            raise ForgedWebhookError(
                f"the signature is {age:.0f} seconds old, and {self._tolerance:g} are allowed in "
                "both directions; was the message sent again, or is a clock wrong?"
            )


class StripeSignature(_Verifier):
    """HMAC-SHA256 of time and raw body, as `t=1700000000,v1=5257a8…` in one header.

    `secret` is text, bytes, a list of them while they are replaced, or a function that returns one
    of these for each message. The time may be `tolerance` seconds away from this machine's clock,
    in both directions. Raise `ConfigurationError` for an empty secret.
    """

    def __init__(
        self, secret: Secrets, *, tolerance: float = 300, header: str = "Stripe-Signature"
    ) -> None:
        super().__init__(secret, header, tolerance=tolerance)

    def __call__(self, request: HttpRequest) -> bool:
        [name] = self._headers
        pairs = [item.strip().partition("=") for item in header_of(request, name).split(",")]
        times = [value for key, _, value in pairs if key == "t"]
        given = [value for key, _, value in pairs if key == "v1"]
        if len(times) != 1 or not _UNIX_SECONDS.fullmatch(times[0]) or not given:
            raise ForgedWebhookError(f"header {name} is not of the form t=1700000000,v1=….")
        content = f"{times[0]}.".encode() + request.body
        self._check_signed(content, given, times[0], base64=False)
        return True


class StandardWebhooksSignature(_Verifier):
    """Standard Webhooks: HMAC-SHA256 of id, time and raw body, in base64.

    The id is in the header `webhook-id`, the time in `webhook-timestamp`, and the signatures in
    `webhook-signature`, as `v1,K5oZfz…` with spaces between several. Entries of other versions are
    ignored. `headers` is the prefix of the three, if the sender uses another one. `secret` and
    `tolerance` as for `StripeSignature`; a secret in text is `whsec_` and base64.
    """

    secret_values = StandardSecretValues

    def __init__(
        self, secret: Secrets, *, tolerance: float = 300, headers: str = "webhook-"
    ) -> None:
        names = (f"{headers}{name}" for name in ("id", "timestamp", "signature"))
        super().__init__(secret, *names, tolerance=tolerance)

    def __call__(self, request: HttpRequest) -> bool:
        _id, timestamp, signature = self._headers
        moment = time_of(request, timestamp)
        content = f"{self.message_id(request)}.{moment}.".encode() + request.body
        entries = [entry.partition(",") for entry in header_of(request, signature).split(" ")]
        given = [text for version, _, text in entries if version == "v1"]
        if not given:
            raise ForgedWebhookError(f"header {signature} has no signature v1,….")
        self._check_signed(content, given, moment, base64=True)
        return True

    def message_id(self, request: HttpRequest) -> str:
        """Return the id of an authentic message; the id itself is signed."""
        name = self._headers[0]
        message_id = header_of(request, name)
        if not message_id.isascii():
            raise ForgedWebhookError(f"header {name} has characters that are not ASCII.")
        return message_id


class SlackSignature(_Verifier):
    """HMAC-SHA256 of `v0:time:body`, as `v0=a2114d…` in `X-Slack-Signature`.

    The time is in `X-Slack-Request-Timestamp`. Slack's messages have no signed id, so the id is
    made from time and body: a repeated request is the same message. `secret` and `tolerance` as for
    `StripeSignature`.
    """

    _TIME = "X-Slack-Request-Timestamp"

    def __init__(self, secret: Secrets, *, tolerance: float = 300) -> None:
        super().__init__(secret, tolerance=tolerance)

    def __call__(self, request: HttpRequest) -> bool:
        given = after_prefix(request, "X-Slack-Signature", "v0=")
        self._check_signed(
            self._signed(request), [given], time_of(request, self._TIME), base64=False
        )
        return True

    def message_id(self, request: HttpRequest) -> str:
        """Return the id of an authentic message, made from all signed parts."""
        return fingerprint(self._signed(request))

    def _signed(self, request: HttpRequest) -> bytes:
        return f"v0:{time_of(request, self._TIME)}:".encode() + request.body


class GitHubSignature(_Verifier):
    """HMAC-SHA256 of the raw body, as `sha256=5257a8…` in a header.

    It has no time, so an intercepted message can be sent again: give the view a `message_id`.
    `prefix` comes before the hexadecimal digits. `secret` as for `StripeSignature`.
    """

    def __init__(
        self, secret: Secrets, *, header: str = "X-Hub-Signature-256", prefix: str = "sha256="
    ) -> None:
        super().__init__(secret, header)
        self._prefix = prefix

    def __call__(self, request: HttpRequest) -> bool:
        given = after_prefix(request, self._headers[0], self._prefix)
        self._check_signed(request.body, [given], base64=False)
        return True


class ShopifySignature(_Verifier):
    """HMAC-SHA256 of the raw body, in base64, as Shopify signs: `header` has nothing else.

    It has no time, and no other header is signed, so the id of a message is made from its body: a
    repeated body is the same message. `secret` as for `StripeSignature`.
    """

    def __init__(self, secret: Secrets, *, header: str = "X-Shopify-Hmac-Sha256") -> None:
        super().__init__(secret, header)

    def __call__(self, request: HttpRequest) -> bool:
        self._check_signed(request.body, [header_of(request, self._headers[0])], base64=True)
        return True

    def message_id(self, request: HttpRequest) -> str:
        """Return the id of an authentic message, made from its body."""
        return fingerprint(request.body)


class SharedSecret(_Verifier):
    """The secret itself in a header, for example `SharedSecret("X-Token", secret)`.

    It is as safe as the connection. The header is removed from the request, so that no error report
    shows it. `secret` as for `StripeSignature`.
    """

    def __init__(self, header: str, secret: Secrets) -> None:
        super().__init__(secret, header)

    def __call__(self, request: HttpRequest) -> bool:
        [name] = self._headers
        given = header_of(request, name)
        request.META[meta_name(name)] = "…"
        check_one_matches(self._secrets.read(), [given])
        return True


class NoVerification:
    """Accepts every message: only for an address that nobody else can reach."""

    def __call__(self, request: HttpRequest) -> bool:
        return True

    def __repr__(self) -> str:
        return "NoVerification()"


# Headers, and what they say


def header_of(request: HttpRequest, name: str) -> str:
    """Return the header of a request; raise `ForgedWebhookError` if it is missing."""
    # Not request.headers, which would keep a copy of a secret.
    value = request.META.get(meta_name(name))
    if not value:
        raise ForgedWebhookError(f"header {name} is missing.")
    return str(value)


def meta_name(header: str) -> str:
    """Return the name under which a request keeps a header."""
    name = header.upper().replace("-", "_")
    return name if name in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{name}"


def after_prefix(request: HttpRequest, name: str, prefix: str) -> str:
    """Return what follows the prefix of a header; raise `ForgedWebhookError` without it."""
    given = header_of(request, name)
    if not given.startswith(prefix):
        raise ForgedWebhookError(f"header {name} does not begin with {prefix!r}.")
    return given.removeprefix(prefix)


def time_of(request: HttpRequest, name: str) -> str:
    """Return the header with the time; raise `ForgedWebhookError` if it is not a time."""
    text = header_of(request, name)
    if not _UNIX_SECONDS.fullmatch(text):
        raise ForgedWebhookError(
            f"header {name} is not a number of seconds since 1970, such as 1700000000."
        )
    return text


def check_one_matches(expected: Sequence[bytes], given: Iterable[str]) -> None:
    """Raise `ForgedWebhookError` unless one of the given signatures is expected."""
    # A list, because the first match must not end the comparing earlier.
    found = [hmac.compare_digest(one, bytes_of(other)) for other in given for one in expected]
    if not any(found):
        raise ForgedWebhookError("the signature or secret of the message is not right.")


def bytes_of(header: str) -> bytes:
    """Return the bytes that were sent; servers decode headers as Latin-1."""
    try:
        return header.encode("latin-1")
    except UnicodeEncodeError:
        return b""  # which no secret is


def fingerprint(content: bytes) -> str:
    """Return an id for signed content: equal for equal content, different for any other."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
