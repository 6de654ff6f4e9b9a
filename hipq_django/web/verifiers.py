"""Verifiers: whether a webhook message comes from whom it says.

A verifier is a callable that takes the request and returns True for an authentic one; anything
else, or an exception, refuses it. Those of this module compare in constant time and show their
secrets nowhere.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from time import time
from typing import TYPE_CHECKING

from hipq_django.domain.validation import MAX_SECONDS, number_in
from hipq_django.exceptions import ConfigurationError, ForgedWebhookError

if TYPE_CHECKING:
    from django.http import HttpRequest

Secret = str | bytes
Secrets = Secret | Sequence[Secret] | Callable[[], Secret | Sequence[Secret]]

_HEADER = re.compile(r"[A-Za-z0-9-]+")
_UNIX_SECONDS = re.compile(r"[0-9]{1,12}")


class StripeSignature:
    """HMAC-SHA256 of time and raw body, as `t=1700000000,v1=5257a8…` in one header.

    `secret` is text, bytes, a list of them while they are exchanged, or a function that returns
    one of these at each message. The time may be `tolerance` seconds away from this machine's
    clock, in both directions. Raise `ConfigurationError` for an empty secret.
    """

    def __init__(
        self, secret: Secrets, *, tolerance: float = 300, header: str = "Stripe-Signature"
    ) -> None:
        self._secrets = _SecretValues(type(self).__name__, secret)
        self._header = _checked_header(type(self).__name__, header)
        self._tolerance = _checked_tolerance(tolerance)

    def __call__(self, request: HttpRequest) -> bool:
        signed = _read_timed(_header_of(request, self._header), self._header)
        content = f"{signed.time}.".encode() + request.body
        _check_one_matches(_digests(self._secrets, content), signed.signatures)
        age = time() - int(signed.time)
        if abs(age) > self._tolerance:
            raise ForgedWebhookError(
                f"the signature is {age:.0f} seconds old, and {self._tolerance:g} are allowed in "
                "both directions; was the message sent again, or is a clock wrong?"
            )
        return True

    def __repr__(self) -> str:
        return f"StripeSignature(…, tolerance={self._tolerance!r}, header={self._header!r})"


class GitHubSignature:
    """HMAC-SHA256 of the raw body, as `sha256=5257a8…` in a header.

    It has no time, so a message that was overheard can be sent again: give the view a
    `message_id`. `prefix` is what stands before the hexadecimal digits. `secret` as for
    `StripeSignature`.
    """

    def __init__(
        self, secret: Secrets, *, header: str = "X-Hub-Signature-256", prefix: str = "sha256="
    ) -> None:
        self._secrets = _SecretValues(type(self).__name__, secret)
        self._header = _checked_header(type(self).__name__, header)
        self._prefix = prefix

    def __call__(self, request: HttpRequest) -> bool:
        given = _header_of(request, self._header)
        if not given.startswith(self._prefix):
            raise ForgedWebhookError(f"header {self._header} does not begin with {self._prefix!r}.")
        signature = given.removeprefix(self._prefix)
        _check_one_matches(_digests(self._secrets, request.body), [signature])
        return True

    def __repr__(self) -> str:
        return f"GitHubSignature(…, header={self._header!r}, prefix={self._prefix!r})"


class SharedSecret:
    """The secret itself in a header, for example `SharedSecret("X-Token", secret)`.

    It is as safe as the connection. The header is taken out of the request, so that no error
    report shows it. `secret` as for `StripeSignature`.
    """

    def __init__(self, header: str, secret: Secrets) -> None:
        self._header = _checked_header(type(self).__name__, header)
        self._secrets = _SecretValues(type(self).__name__, secret)

    def __call__(self, request: HttpRequest) -> bool:
        given = _header_of(request, self._header)
        request.META[_meta_name(self._header)] = "…"
        _check_one_matches(self._secrets.read(), [given])
        return True

    def __repr__(self) -> str:
        return f"SharedSecret({self._header!r}, …)"


class NoVerification:
    """Everybody is believed: only for an address that nobody else can reach."""

    def __call__(self, request: HttpRequest) -> bool:
        return True

    def __repr__(self) -> str:
        return "NoVerification()"


# Secrets


class _SecretValues:
    """One secret or several; those that no function returns are checked at once."""

    __slots__ = ("_given", "_where")

    def __init__(self, where: str, given: Secrets) -> None:
        self._where = where
        self._given = given
        if not callable(given):
            self.read()

    def read(self) -> list[bytes]:
        """Return the secrets of this moment; raise `ConfigurationError` unless all are usable."""
        given = self._ask(self._given) if callable(self._given) else self._given
        several = list(given) if isinstance(given, list | tuple) else [given]
        if not several:
            raise ConfigurationError(f"{self._where}: the list of secrets is empty; give one.")
        return [self._checked(secret) for secret in several]

    def _ask(self, function: Callable[[], object]) -> object:
        try:
            return function()
        except Exception as error:  # the project's code
            raise ConfigurationError(
                f"{self._where}: the function that returns the secret raised {type(error).__name__}"
                "; it must return text that is not empty."
            ) from error

    def _checked(self, secret: object) -> bytes:
        if not isinstance(secret, str | bytes):
            raise ConfigurationError(
                f"{self._where}: the secret is of type {type(secret).__name__}; give text, bytes, "
                "a list of them, or a function that returns them."
            )
        if not secret:
            raise ConfigurationError(
                f"{self._where}: the secret is empty, so that anybody could sign; is its "
                "environment variable set?"
            )
        if isinstance(secret, str) and secret != secret.strip():
            raise ConfigurationError(
                f"{self._where}: the secret begins or ends with white space; strip() it."
            )
        return secret.encode() if isinstance(secret, str) else secret

    def __repr__(self) -> str:
        return "…"


def _checked_header(where: str, name: object) -> str:
    if isinstance(name, str) and _HEADER.fullmatch(name):
        return name
    raise ConfigurationError(
        f"{where}: header {name!r:.200} is no name of a header; give one such as 'X-Token'."
    )


def _checked_tolerance(seconds: object) -> float:
    number = number_in(seconds, 0, MAX_SECONDS)
    if not number:
        raise ConfigurationError(
            f"StripeSignature: tolerance {seconds!r}: give seconds above 0, at most "
            f"{MAX_SECONDS:,}."
        )
    return number


# Signatures


@dataclass(frozen=True, slots=True)
class _Timed:
    """A signature header with a time: its text, which is signed, and the signatures."""

    time: str
    signatures: list[str]


def _read_timed(header: str, name: str) -> _Timed:
    pairs = [item.strip().partition("=") for item in header.split(",")]
    times = [value for key, _, value in pairs if key == "t"]
    signatures = [value for key, _, value in pairs if key == "v1"]
    if len(times) != 1 or not _UNIX_SECONDS.fullmatch(times[0]) or not signatures:
        raise ForgedWebhookError(f"header {name} is not of the form t=1700000000,v1=….")
    return _Timed(times[0], signatures)


def _digests(secrets: _SecretValues, content: bytes) -> list[bytes]:
    return [hmac.digest(secret, content, "sha256").hex().encode() for secret in secrets.read()]


def _check_one_matches(expected: Sequence[bytes], given: Iterable[str]) -> None:
    # A list, because the first match must not end the comparing earlier.
    found = [hmac.compare_digest(one, _bytes_of(other)) for other in given for one in expected]
    if not any(found):
        raise ForgedWebhookError("the signature or secret of the message is not right.")


def _bytes_of(header: str) -> bytes:
    """Return the bytes that were sent; servers decode headers as Latin-1."""
    try:
        return header.encode("latin-1")
    except UnicodeEncodeError:
        return b""  # which no secret is


def _header_of(request: HttpRequest, name: str) -> str:
    # Not request.headers, which would keep a copy of a secret.
    value = request.META.get(_meta_name(name))
    if not value:
        raise ForgedWebhookError(f"header {name} is missing.")
    return str(value)


def _meta_name(header: str) -> str:
    name = header.upper().replace("-", "_")
    return name if name in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{name}"
