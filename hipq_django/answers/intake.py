"""Takes in the messages of a source: the project's function reads them, and they are stored.

No message is lost, and none blocks those behind it: a message that is no answer, or that the
database refuses, is kept in the inbox as malformed, with its content and the reason. For what is
not the message's fault, such as an outage or a missing migration, it stays with the broker.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any

from django.db import Error

from hipq_django import events
from hipq_django.answers.api import incoming_from, malformed_message, receive_messages
from hipq_django.conf.instances import InstanceSettings
from hipq_django.database.errors import said_of
from hipq_django.database.transactions import bounded_transaction
from hipq_django.domain.drafts import IncomingAnswer, NewAnswer
from hipq_django.domain.serialization import error_of, storable_text
from hipq_django.exceptions import ConfigurationError, InvalidAnswerError
from hipq_django.sources import IGNORE, Received
from hipq_django.sources.settings import SourceSettings

MAX_KEPT_BYTES = 1_048_576
MAX_KEPT_HEADERS = 50
MAX_KEPT_CHARS = 1_000


class Intake:
    """Takes in the messages of one source."""

    def __init__(self, config: InstanceSettings, settings: SourceSettings) -> None:
        self._config, self._instance = config, config.name
        self._source = settings.name
        self._map: Callable[[Received], Any] = settings.map_function()

    def take_all(self, received: Sequence[Received]) -> None:
        """Read and store messages, all in a transaction for each shard; raise if that fails."""
        messages = [message for each in received if (message := self._read(each)) is not None]
        self._store(messages)

    def keep_refused(self, received: Received, error: Exception) -> None:
        """Keep a message as malformed that cannot be stored as what it says."""
        if isinstance(error, ConfigurationError):
            raise error  # it is not the message's fault
        self._store([self._malformed(received, error)])

    def _store(self, messages: Sequence[IncomingAnswer]) -> None:
        if messages:
            receive_messages(messages, bounded_transaction)

    def _read(self, received: Received) -> IncomingAnswer | None:
        try:
            answer = self._map(received)
        except (KeyboardInterrupt, Error):  # Error: it queried the database
            raise
        except BaseException as error:  # sys.exit() in it ends no consumer
            return self._malformed(received, error)
        return None if answer is IGNORE else self._answer_of(received, answer)

    def _answer_of(self, received: Received, answer: object) -> IncomingAnswer:
        try:
            return incoming_from(_checked(answer), self._config, self._source, received.message_id)
        except (Error, ConfigurationError):
            raise
        except Exception as error:
            return self._malformed(received, error)

    def _malformed(self, received: Received, error: BaseException) -> IncomingAnswer:
        problem = error_of(error)
        said = said_of(error) if isinstance(error, Error) else problem
        fields: dict[str, Any] = {"source": self._source, "message_id": received.message_id}
        events.warning("malformed_message", said, **fields)
        raw = {"source": self._source, **_kept(received)}
        return malformed_message(self._instance, self._source, raw, problem, received.message_id)


def _checked(answer: object) -> NewAnswer:
    if isinstance(answer, NewAnswer):
        return answer
    raise InvalidAnswerError(
        f"the map function returned an object of type {type(answer).__name__}; return a "
        "hipq_django.NewAnswer, or hipq_django.sources.IGNORE for a message that is not for this "
        "project."
    )


def _kept(received: Received) -> dict[str, Any]:
    """Return what is kept of a message: its content, up to a maximum size."""
    headers = list(dict(received.headers or {}).items())[:MAX_KEPT_HEADERS]
    return {
        **_kept_bytes("body", received.body, MAX_KEPT_BYTES),
        **_kept_bytes("key", received.key, MAX_KEPT_CHARS),
        "headers": {_text(name): _text(value) for name, value in headers},
    }


def _kept_bytes(name: str, data: object, limit: int) -> dict[str, Any]:
    """Return content as text if databases can store it so, else in base64; if cut, its length too.

    Whatever a source has given as bytes, the message must be kept.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        data = b"" if data is None else str(data).encode(errors="replace")
    start = bytes(data[:limit])
    length = {f"{name}_bytes": len(data)} if len(data) > limit else {}
    try:
        text = start.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        return {f"{name}_base64": base64.b64encode(start).decode(), **length}
    return {name: text, **length}


def _text(value: object) -> str:
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return storable_text(text, MAX_KEPT_CHARS)
