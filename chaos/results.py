"""What the matrix found, as it is kept in a file."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Outcome:
    """What one cell found on one database."""

    version: str = ""
    """That of the database."""
    figures: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    """How many things each rule found wrong."""
    examples: dict[str, list[str]] = field(default_factory=dict)
    skipped: str = ""
    """Why it could not be run here."""
    broken: str = ""
    """Why the harness itself did not come to an end."""

    @property
    def is_sound(self) -> bool:
        """Whether it was run, and nothing was wrong."""
        return not (self.skipped or self.broken or any(self.counts.values()))


@dataclass
class Results:
    """The outcomes by cell and database, and where they come from."""

    date: str = ""
    seconds: float = 0.0
    fault_seconds: float = 0.0
    seed: int = 0
    machine: dict[str, str] = field(default_factory=dict)
    outcomes: dict[str, dict[str, Outcome]] = field(default_factory=dict)

    @property
    def runs(self) -> list[Outcome]:
        """All outcomes."""
        return [outcome for of_cell in self.outcomes.values() for outcome in of_cell.values()]


def load(path: Path) -> Results:
    """Read results from a file."""
    read = json.loads(path.read_text())
    outcomes = {
        cell: {database: Outcome(**outcome) for database, outcome in of_cell.items()}
        for cell, of_cell in read.pop("outcomes").items()
    }
    return Results(**read, outcomes=outcomes)


def save(results: Results, path: Path) -> None:
    """Write results to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(results), indent=1) + "\n")


def load_outcome(path: Path) -> Outcome:
    """Read what a cell's process wrote."""
    return Outcome(**json.loads(path.read_text()))
