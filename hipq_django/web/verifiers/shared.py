"""Verifiers of messages that are not signed."""

from __future__ import annotations

from django.http import HttpRequest

from hipq_django.web.verifiers.secrets import Secrets, SecretValues
from hipq_django.web.verifiers.signatures import (
    check_one_matches,
    checked_header,
    header_of,
    meta_name,
)


class SharedSecret:
    """The secret itself in a header, for example `SharedSecret("X-Token", secret)`.

    It is as safe as the connection. The header is removed from the request, so that no error report
    shows it. `secret` as for `StripeSignature`.
    """

    def __init__(self, header: str, secret: Secrets) -> None:
        self._header = checked_header(type(self).__name__, header)
        self._secrets = SecretValues(type(self).__name__, secret)

    def __call__(self, request: HttpRequest) -> bool:
        given = header_of(request, self._header)
        request.META[meta_name(self._header)] = "…"
        check_one_matches(self._secrets.read(), [given])
        return True

    def __repr__(self) -> str:
        return f"SharedSecret({self._header!r}, …)"


class NoVerification:
    """Accepts every message: only for an address that nobody else can reach."""

    def __call__(self, request: HttpRequest) -> bool:
        return True

    def __repr__(self) -> str:
        return "NoVerification()"
