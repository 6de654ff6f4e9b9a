"""The ledger: what happened, written down where no fault reaches it.

One line of JSON for each event, appended by handlers in their workers, by the clients that
enqueue and answer, and by whoever makes the faults. A line is one write to a file that is open
for appending, so those of many processes do not mix; and the kernel has it when the call
returns, so nothing is lost with a process that is killed the next moment.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now() -> float:
    """Return the ledger's time in seconds: one clock for all processes, which nobody can set."""
    return time.clock_gettime(_CLOCK)


@dataclass(frozen=True)
class Event:
    """One line of the ledger; `key` names the job, where it is about one."""

    at: float
    what: str
    pid: int = 0
    key: str = ""
    attempt: int = 0
    more: dict[str, Any] = field(default_factory=dict)


class Ledger:
    """Appends events to a file."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)

    def write(self, what: str, key: str = "", attempt: int = 0, **more: Any) -> None:
        """Append an event of this moment and this process."""
        os.write(self._file, _line(what, key, attempt, more))

    def write_many(self, what: str, of: Mapping[str, dict[str, Any]]) -> None:
        """Append an event about each of these jobs, at once."""
        os.write(self._file, b"".join(_line(what, key, 0, more) for key, more in of.items()))


def _line(what: str, key: str, attempt: int, more: dict[str, Any]) -> bytes:
    line = {"at": now(), "what": what, "pid": os.getpid()}
    return json.dumps(line | {"key": key, "attempt": attempt, "more": more}).encode() + b"\n"


class Reader:
    """Reads a ledger from its beginning to what is there, again and again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def read(self) -> list[Event]:
        """Return the events that were written since the last call."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._offset += len(whole) + len(newline)
        return [Event(**json.loads(line)) for line in whole.splitlines()]
