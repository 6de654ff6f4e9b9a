"""Verifiers of signatures with a time; old signatures are refused."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass

from django.http import HttpRequest

from hipq_django.exceptions import ForgedWebhookError
from hipq_django.web.verifiers.secrets import Secrets, SecretValues, StandardSecretValues
from hipq_django.web.verifiers.signatures import (
    check_age,
    check_one_matches,
    checked_header,
    checked_tolerance,
    digests,
    fingerprint,
    header_of,
    hex_digests,
    is_time,
    time_of,
)


class StripeSignature:
    """HMAC-SHA256 of time and raw body, as `t=1700000000,v1=5257a8…` in one header.

    `secret` is text, bytes, a list of them while they are replaced, or a function that returns one
    of these for each message. The time may be `tolerance` seconds away from this machine's clock,
    in both directions. Raise `ConfigurationError` for an empty secret.
    """

    def __init__(
        self, secret: Secrets, *, tolerance: float = 300, header: str = "Stripe-Signature"
    ) -> None:
        self._secrets = SecretValues(type(self).__name__, secret)
        self._header = checked_header(type(self).__name__, header)
        self._tolerance = checked_tolerance(type(self).__name__, tolerance)

    def __call__(self, request: HttpRequest) -> bool:
        signed = _read_timed(header_of(request, self._header), self._header)
        content = f"{signed.time}.".encode() + request.body
        check_one_matches(hex_digests(self._secrets, content), signed.signatures)
        check_age(signed.time, self._tolerance)
        return True

    def __repr__(self) -> str:
        return f"StripeSignature(…, tolerance={self._tolerance!r}, header={self._header!r})"


class StandardWebhooksSignature:
    """Standard Webhooks: HMAC-SHA256 of id, time and raw body, in base64.

    The id is in the header `webhook-id`, the time in `webhook-timestamp`, and the signatures in
    `webhook-signature`, as `v1,K5oZfz…` with spaces between several. Entries of other versions are
    ignored. `headers` is the prefix of the three, if the sender uses another one. `secret` and
    `tolerance` as for `StripeSignature`; a secret in text is `whsec_` and base64.
    """

    def __init__(
        self, secret: Secrets, *, tolerance: float = 300, headers: str = "webhook-"
    ) -> None:
        where = type(self).__name__
        self._secrets = StandardSecretValues(where, secret)
        self._headers = headers
        self._id, self._time, self._signature = (
            checked_header(where, f"{headers}{name}") for name in ("id", "timestamp", "signature")
        )
        self._tolerance = checked_tolerance(where, tolerance)

    def __call__(self, request: HttpRequest) -> bool:
        moment = time_of(request, self._time)
        content = f"{self.message_id(request)}.{moment}.".encode() + request.body
        entries = [entry.partition(",") for entry in header_of(request, self._signature).split(" ")]
        given = [signature for version, _, signature in entries if version == "v1"]
        if not given:
            raise ForgedWebhookError(f"header {self._signature} has no signature v1,….")
        check_one_matches([b64encode(one) for one in digests(self._secrets, content)], given)
        check_age(moment, self._tolerance)
        return True

    def message_id(self, request: HttpRequest) -> str:
        """Return the id of an authentic message; the id itself is signed."""
        name = header_of(request, self._id)
        if not name.isascii():
            raise ForgedWebhookError(f"header {self._id} has characters that are not ASCII.")
        return name

    def __repr__(self) -> str:
        return (
            f"StandardWebhooksSignature(…, tolerance={self._tolerance!r}, "
            f"headers={self._headers!r})"
        )


class SlackSignature:
    """HMAC-SHA256 of `v0:time:body`, as `v0=a2114d…` in `X-Slack-Signature`.

    The time is in `X-Slack-Request-Timestamp`. Slack's messages have no signed id, so the id is
    made from time and body: a repeated request is the same message. `secret` and `tolerance` as for
    `StripeSignature`.
    """

    _SIGNATURE = "X-Slack-Signature"
    _TIME = "X-Slack-Request-Timestamp"

    def __init__(self, secret: Secrets, *, tolerance: float = 300) -> None:
        self._secrets = SecretValues(type(self).__name__, secret)
        self._tolerance = checked_tolerance(type(self).__name__, tolerance)

    def __call__(self, request: HttpRequest) -> bool:
        given = header_of(request, self._SIGNATURE)
        if not given.startswith("v0="):
            raise ForgedWebhookError(f"header {self._SIGNATURE} does not begin with 'v0='.")
        expected = hex_digests(self._secrets, self._signed(request))
        check_one_matches(expected, [given.removeprefix("v0=")])
        check_age(time_of(request, self._TIME), self._tolerance)
        return True

    def message_id(self, request: HttpRequest) -> str:
        """Return the id of an authentic message, made from all signed parts."""
        return fingerprint(self._signed(request))

    def _signed(self, request: HttpRequest) -> bytes:
        return f"v0:{time_of(request, self._TIME)}:".encode() + request.body

    def __repr__(self) -> str:
        return f"SlackSignature(…, tolerance={self._tolerance!r})"


@dataclass(frozen=True, slots=True)
class _Timed:
    """A signature header with a time: its text, which is signed, and the signatures."""

    time: str
    signatures: list[str]


def _read_timed(header: str, name: str) -> _Timed:
    pairs = [item.strip().partition("=") for item in header.split(",")]
    times = [value for key, _, value in pairs if key == "t"]
    signatures = [value for key, _, value in pairs if key == "v1"]
    if len(times) != 1 or not is_time(times[0]) or not signatures:
        raise ForgedWebhookError(f"header {name} is not of the form t=1700000000,v1=….")
    return _Timed(times[0], signatures)
