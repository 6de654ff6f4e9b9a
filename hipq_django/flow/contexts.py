"""Contexts and groups: options of the messages and log entries written in a block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from hipq_django.domain.redaction import NOBODY, HasSecrets
from hipq_django.domain.serialization import sized_json
from hipq_django.flow.exceptions import MessageTooLargeError
from hipq_django.flow.values import stored_json


class Group(NamedTuple):
    """How messages are written and read inside of a block."""

    log: bool = True
    notify: bool = True
    as_default: bool = False
    entry: Entry | None = None
    room: Room | None = None


class Entry:
    """The log entry of an outermost group: the data read and written, port by port."""

    def __init__(self, *, is_stored: bool = False) -> None:
        self.is_stored = is_stored
        """Whether it is kept; else it is only published, because somebody listens."""
        self.read: list[dict[str, Any]] = []
        self.written: list[dict[str, Any]] = []

    def note(
        self, lines: list[dict[str, Any]], place: tuple[int, str, str], values: Iterable[Any]
    ) -> None:
        """Add values of a port; consecutive ones of a port share a line."""
        node, direction, name = place
        port = {"node": node, "input" if direction == "in" else "output": name}
        for value in values:
            if lines and {key: v for key, v in lines[-1].items() if key != "data"} == port:
                lines[-1]["data"].append(value)
            else:
                lines.append({**port, "data": [value]})

    def __bool__(self) -> bool:
        return bool(self.read or self.written)

    @property
    def node(self) -> int | None:
        """The node of all ports that it names, or None."""
        nodes = {line["node"] for line in (*self.read, *self.written)}
        return nodes.pop() if len(nodes) == 1 else None


ROW_BYTES = 256
"""The bytes counted for a row beside its values."""


class Room:
    """How many bytes of messages and ports a request may still write."""

    def __init__(self, most: int) -> None:
        self.most = self._left = most

    def take(self, *values: Any) -> None:
        """Count a row with these values before it is written.

        Raise `MessageTooLargeError` for one too much.
        """
        self._left -= ROW_BYTES + sum(sized_json(value)[1] for value in values)
        if self._left < 0:
            raise MessageTooLargeError(
                f"this writes more than {self.most:,} bytes, each message counted on each port "
                "where it comes to lie; write less at a time, or do it in code."
            )


class Running(NamedTuple):
    """The run whose code is called now."""

    node: int
    seen: HasSecrets
    """Knows the sensitive values that its code has seen."""


_OUTSIDE: dict[str, Any] = {}
_context: ContextVar[dict[str, Any]] = ContextVar("hipq_flow_context", default=_OUTSIDE)
_OUTERMOST = Group()
_group: ContextVar[Group | None] = ContextVar("hipq_flow_group", default=None)
_running: ContextVar[Running | None] = ContextVar("hipq_flow_run", default=None)


@contextmanager
def context(**data: Any) -> Iterator[None]:
    """Add these values to the context of messages and log entries written in the block.

    An inner block adds to an outer one. Raise `FlowError` for values that are not JSON.
    """
    token = _context.set({**_context.get(), **stored_json(data, "flow.context")})
    try:
        yield
    finally:
        _context.reset(token)


def current_context() -> dict[str, Any]:
    """Return the context of messages written now; they share it, so do not change it."""
    return _context.get()


@contextmanager
def set_group(
    log: bool | None = None,
    notify: bool | None = None,
    as_default: bool | None = None,
    entry: Entry | None = None,
    room: Room | None = None,
) -> Iterator[Group]:
    """Set how messages are written inside of the block; None is as outside of it."""
    outer = current_group()
    given: dict[str, Any] = {"log": log, "notify": notify, "as_default": as_default, "room": room}
    inner = outer._replace(**{name: value for name, value in given.items() if value is not None})
    if outer.entry is None:
        inner = inner._replace(entry=entry)
    before = _group.get()
    _group.set(inner)
    try:
        yield inner
    finally:
        _group.set(before)  # of an async generator this may be in another context


def current_group() -> Group:
    """Return how messages are written now."""
    return _group.get() or _OUTERMOST


@contextmanager
def inside_run(node: int, seen: HasSecrets) -> Iterator[None]:
    """Log entries written in the block as those of a node, without what its code has seen."""
    token = _running.set(Running(node, seen))
    try:
        yield
    finally:
        _running.reset(token)


def current_node() -> int | None:
    """Return the node whose code is called now, or None."""
    running = _running.get()
    return running.node if running else None


def current_secrets() -> HasSecrets:
    """Return what knows the sensitive values that the running code has seen."""
    running = _running.get()
    return running.seen if running else NOBODY
