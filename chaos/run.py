"""One run of a cell: what, on which database, for how long, and the names of its files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from chaos.cells import Cell

THREADS = 8
"""Of each worker process."""
BEAT_SECONDS = 2.0

RESULT = "result.json"
LEDGER = "ledger.jsonl"
LOG = "workers.log"
CLOCK = "clock"
"""The file that says how far the clock of a machine is ahead, in seconds."""


@dataclass(frozen=True)
class Run:
    """One cell on one database, once."""

    cell: Cell
    database: str
    folder: Path
    seconds: float
    """How long faults are made."""
    seed: int
    beat: float = BEAT_SECONDS
    """Seconds between two heartbeats of a worker; after three without one it is lost."""
