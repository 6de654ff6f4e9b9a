"""The secrets of verifiers: one or several, checked before they are used, and never shown."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Sequence

from hipq_django.exceptions import ConfigurationError

Secret = str | bytes
Secrets = Secret | Sequence[Secret] | Callable[[], Secret | Sequence[Secret]]

STANDARD_PREFIX = "whsec_"


class SecretValues:
    """One secret or several; they are checked at once, unless a function returns them."""

    __slots__ = ("_given", "_where")

    def __init__(self, where: str, given: Secrets) -> None:
        self._where = where
        self._given = given
        if not callable(given):
            self.read()

    def read(self) -> list[bytes]:
        """Return the current secrets; raise `ConfigurationError` unless all are usable."""
        given = self._ask(self._given) if callable(self._given) else self._given
        several = list(given) if isinstance(given, list | tuple) else [given]
        if not several:
            raise ConfigurationError(f"{self._where}: the list of secrets is empty; give one.")
        return [self._key(self._checked(secret)) for secret in several]

    def _ask(self, function: Callable[[], object]) -> object:
        try:
            return function()
        except Exception as error:  # the project's code
            raise ConfigurationError(
                f"{self._where}: the function that returns the secret raised {type(error).__name__}"
                "; it must return text that is not empty."
            ) from error

    def _checked(self, secret: object) -> Secret:
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
        return secret

    def _key(self, secret: Secret) -> bytes:
        return secret.encode() if isinstance(secret, str) else secret

    def __repr__(self) -> str:
        return "…"


class StandardSecretValues(SecretValues):
    """Secrets as Standard Webhooks writes them, `whsec_` and base64; bytes are the key itself."""

    __slots__ = ()

    def _key(self, secret: Secret) -> bytes:
        if isinstance(secret, bytes):
            return secret
        encoded = secret.removeprefix(STANDARD_PREFIX)
        padding = "=" * (-len(encoded) % 4)
        try:
            key = b64decode(encoded + padding, validate=True)
        except ValueError:
            key = b""
        if not key:
            raise ConfigurationError(
                f"{self._where}: the secret is not '{STANDARD_PREFIX}' and base64; copy it as the "
                "partner shows it, or give the key itself as bytes."
            )
        return key
