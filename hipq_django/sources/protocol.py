"""What a source is: the protocol between a broker and `hipq_consume`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Protocol, runtime_checkable


class Ignore(Enum):
    """The type of `IGNORE`."""

    IGNORE = "IGNORE"


IGNORE: Final = Ignore.IGNORE
"""What a map function returns for a message that is not for this project: it is not stored."""


@dataclass(frozen=True, slots=True)
class Received:
    """A message as it came.

    `message_id` is the same each time the broker delivers the message; None if there is no id.
    `receipt` is whatever the source needs to acknowledge the message; nothing else uses it.
    """

    body: bytes
    message_id: str | None = None
    key: bytes = b""
    headers: Mapping[str, Any] = field(default_factory=dict)
    receipt: Any = None

    def json(self) -> Any:
        """Return the body, read as JSON in UTF-8; raise `ValueError` if it is not JSON."""
        try:
            return json.loads(self.body.decode())
        except RecursionError:
            raise ValueError("the body is JSON that is nested too deeply") from None
        except ValueError as error:
            raise ValueError(f"the body is not JSON in UTF-8: {error}") from error


@runtime_checkable
class MessageSource(Protocol):
    """Where messages come from. All methods are called by one thread.

    An object of a class with these methods; the class is called with the OPTIONS of the setting,
    and may connect there or at the first `receive`. Any exception from a method means that the
    connection is lost: the source is closed, and after a while a new one is created. Messages that
    were not acknowledged must be delivered again.
    """

    def receive(self, max_messages: int, timeout: float) -> Sequence[Received]:
        """Return the available messages, at most `max_messages`; wait for the first one.

        Return an empty list if none came within `timeout` seconds. It is called again only after
        all returned messages were acknowledged.
        """

    def acknowledge(self, received: Sequence[Received]) -> None:
        """Tell the broker that these messages are committed in the database."""

    def close(self) -> None:
        """Close the connection; may be called after an error."""
