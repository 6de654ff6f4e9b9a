"""What verifiers share: headers of a request, digests, ages, and their comparison."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Sequence
from time import time

from django.http import HttpRequest

from hipq_django.domain.validation import MAX_SECONDS, number_in
from hipq_django.exceptions import ConfigurationError, ForgedWebhookError
from hipq_django.web.verifiers.secrets import SecretValues

_HEADER = re.compile(r"[A-Za-z0-9-]+")
_UNIX_SECONDS = re.compile(r"[0-9]{1,12}")


# Headers


def checked_header(where: str, name: object) -> str:
    """Return the name of a header; raise `ConfigurationError` for an invalid one."""
    if isinstance(name, str) and _HEADER.fullmatch(name):
        return name
    raise ConfigurationError(
        f"{where}: header {name!r:.200} is not the name of a header; give one such as 'X-Token'."
    )


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


def bytes_of(header: str) -> bytes:
    """Return the bytes that were sent; servers decode headers as Latin-1."""
    try:
        return header.encode("latin-1")
    except UnicodeEncodeError:
        return b""  # which no secret is


# Signatures


def digests(secrets: SecretValues, content: bytes) -> list[bytes]:
    """Return the HMAC-SHA256 of the content with each secret."""
    return [hmac.digest(secret, content, "sha256") for secret in secrets.read()]


def hex_digests(secrets: SecretValues, content: bytes) -> list[bytes]:
    """Return the same in hexadecimal digits."""
    return [digest.hex().encode() for digest in digests(secrets, content)]


def check_one_matches(expected: Sequence[bytes], given: Iterable[str]) -> None:
    """Raise `ForgedWebhookError` unless one of the given signatures is expected."""
    # A list, because the first match must not end the comparing earlier.
    found = [hmac.compare_digest(one, bytes_of(other)) for other in given for one in expected]
    if not any(found):
        raise ForgedWebhookError("the signature or secret of the message is not right.")


def fingerprint(content: bytes) -> str:
    """Return an id for signed content: equal for equal content, different for any other."""
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


# Times


def is_time(text: str) -> bool:
    """Whether a text is a number of seconds since 1970."""
    return _UNIX_SECONDS.fullmatch(text) is not None


def time_of(request: HttpRequest, name: str) -> str:
    """Return the header with the time; raise `ForgedWebhookError` if it is not a time."""
    text = header_of(request, name)
    if not is_time(text):
        raise ForgedWebhookError(
            f"header {name} is not a number of seconds since 1970, such as 1700000000."
        )
    return text


def check_age(moment: str, tolerance: float) -> None:
    """Raise `ForgedWebhookError` for a signature that is too old, or too far in the future."""
    age = time() - int(moment)
    if abs(age) > tolerance:
        raise ForgedWebhookError(
            f"the signature is {age:.0f} seconds old, and {tolerance:g} are allowed in "
            "both directions; was the message sent again, or is a clock wrong?"
        )


def checked_tolerance(where: str, seconds: object) -> float:
    """Return the tolerance; raise `ConfigurationError` unless it is a number of seconds."""
    number = number_in(seconds, 0, MAX_SECONDS)
    if not number:
        raise ConfigurationError(
            f"{where}: tolerance {seconds!r}: give seconds above 0, at most {MAX_SECONDS:,}."
        )
    return number
