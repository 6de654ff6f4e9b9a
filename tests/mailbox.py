"""A source of messages in this process, which a test fills and which can break as it wants."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import hipq_django as hipq
from hipq_django.sources import IGNORE, Received


class Mailbox:
    """What every `MailboxSource` reads from."""

    def __init__(self) -> None:
        self.waiting: deque[Received] = deque()
        self.unacknowledged: list[Received] = []
        self.batches: list[int] = []
        self.opened = 0
        self.closed = 0
        self.failures: deque[tuple[str, Exception]] = deque()
        """What raises next, and in which method."""
        self.stop: Callable[[], None] = lambda: None
        """Stops the consumer."""
        self.stays_for = 0
        """How often the consumer finds nothing before it is stopped."""
        self.when_empty: Callable[[], None] = lambda: None
        """Called before the consumer is stopped because nothing is left."""
        self.before_receiving: Callable[[], object] = lambda: None
        """Called by the source, which may query a database."""
        self.before_reading: Callable[[], object] = lambda: None
        """Called by the map function, which may query a database."""

    def put(self, *bodies: bytes, **values: Any) -> None:
        """Let messages wait."""
        for body in bodies:
            number = len(self.waiting)
            self.waiting.append(Received(body, **({"message_id": f"m-{number}"} | values)))

    def fail(self, method: str) -> None:
        """Raise the next failure if it is this method's turn."""
        if self.failures and self.failures[0][0] == method:
            raise self.failures.popleft()[1]


mailbox = Mailbox()


class MailboxSource:
    """Reads from the mailbox of the running test."""

    def __init__(self, greeting: str = "") -> None:
        self.greeting = greeting
        mailbox.fail("open")
        mailbox.opened += 1

    def receive(self, max_messages: int, timeout: float) -> Sequence[Received]:
        """Take messages out; what was not acknowledged of the last ones is delivered again."""
        mailbox.fail("receive")
        mailbox.before_receiving()
        while mailbox.unacknowledged:
            mailbox.waiting.appendleft(mailbox.unacknowledged.pop())
        number = min(max_messages, len(mailbox.waiting))
        mailbox.unacknowledged = [mailbox.waiting.popleft() for _ in range(number)]
        if not number and mailbox.stays_for:
            mailbox.stays_for -= 1
        elif not number:
            mailbox.when_empty()
            mailbox.stop()
        mailbox.batches.append(number)
        return mailbox.unacknowledged

    def acknowledge(self, received: Sequence[Received]) -> None:
        """Forget them."""
        assert received == mailbox.unacknowledged
        mailbox.fail("acknowledge")
        mailbox.unacknowledged = []

    def close(self) -> None:
        """Count it."""
        mailbox.closed += 1
        mailbox.fail("close")


class Headless:
    """A class that is no source."""

    def receive(self, max_messages: int, timeout: float) -> Sequence[Received]:
        """Return nothing."""
        return []


def read(message: Received) -> Any:
    """Read `{"type": …, "key": …, "response" or "error": …}`; what has a "topic" is not ours."""
    mailbox.before_reading()
    body = message.json()
    if "topic" in body:
        return IGNORE
    return hipq.NewAnswer(
        body.get("type", "ask"),
        body["key"],
        response=body.get("response"),
        error=body.get("error"),
        message_id=body.get("id"),
    )


def leave(message: Received) -> None:
    """End the process, or try to."""
    raise SystemExit(3)


def forgetful(message: Received) -> None:
    """Forget to return something."""


not_a_function = "read"
