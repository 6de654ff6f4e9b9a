"""Moves the clock of this process, as `date` or NTP moves that of a machine.

It is the wall clock that moves: what `time.time()`, `datetime.now()` and the system's
`CLOCK_REALTIME` say in this process. The monotonic clocks go on, as they do on a machine.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import time_machine

LOOK_SECONDS = 0.05


def follow(path: str) -> None:
    """Keep the clock as far ahead of the true one as the file at `path` says, in seconds."""
    threading.Thread(target=_follow, args=(Path(path),), daemon=True).start()


def _follow(path: Path) -> None:
    ahead, traveller = 0.0, None
    while True:
        with suppress(OSError, ValueError):
            wanted = float(path.read_text())
            if wanted != ahead:
                if traveller:
                    traveller.stop()
                ahead, traveller = wanted, _travel(wanted)
        time.sleep(LOOK_SECONDS)


def _travel(seconds: float) -> time_machine.travel:
    traveller = time_machine.travel(datetime.now(UTC) + timedelta(seconds=seconds), tick=True)
    traveller.start()
    return traveller
