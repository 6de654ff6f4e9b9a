"""What was measured: kept in a JSON file from which the page is made."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

Values = dict[str, list[float]]
"""The values of each figure, one for each round."""


class DifferentMachineError(Exception):
    """Figures of two machines do not belong into one table."""


@dataclass
class Results:
    """All figures of a benchmark: `figures[workload][system][figure]` is a list of values.

    `sizes`, `tries` (how often it was run, successfully or not), `notes` and `errors` have the same
    two keys; `versions` is by system.
    """

    machine: dict[str, str] = field(default_factory=dict)
    servers: dict[str, str] = field(default_factory=dict)
    date: str = ""
    rounds: int = 0
    quick: bool = False
    versions: dict[str, dict[str, str]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    tries: dict[str, dict[str, int]] = field(default_factory=dict)
    figures: dict[str, dict[str, Values]] = field(default_factory=dict)
    notes: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    errors: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    seconds: float = 0.0
    soak: dict[str, Any] = field(default_factory=dict)

    def add(self, workload: str, system: str, figures: dict[str, float]) -> None:
        """Add the values of one round."""
        values = self.figures.setdefault(workload, {}).setdefault(system, {})
        for name, value in figures.items():
            values.setdefault(name, []).append(value)

    def add_try(self, workload: str, system: str) -> None:
        """Count that a system's workload was run once more."""
        self.tries.setdefault(workload, {})[system] = self.tried(workload, system) + 1

    def tried(self, workload: str, system: str) -> int:
        """Return how often a system's workload was run."""
        return self.tries.get(workload, {}).get(system, 0)

    def add_note(self, workload: str, system: str, note: str) -> None:
        """Add a note, unless it is there."""
        _add_text(self.notes, workload, system, note)

    def add_error(self, workload: str, system: str, error: str) -> None:
        """Add why a run failed, unless it is there."""
        _add_text(self.errors, workload, system, error)

    def has_failed(self, workload: str, system: str) -> bool:
        """Return whether a run failed."""
        return system in self.errors.get(workload, {})

    def forget(self, workload: str, system: str) -> None:
        """Drop what is known of a system's workload, before it is measured anew."""
        kept: tuple[dict[str, dict[str, Any]], ...] = (
            self.figures, self.notes, self.errors, self.sizes, self.tries
        )  # fmt: skip
        for by_workload in kept:
            by_workload.get(workload, {}).pop(system, None)


def _add_text(kept: dict[str, dict[str, list[str]]], workload: str, system: str, text: str) -> None:
    texts = kept.setdefault(workload, {}).setdefault(system, [])
    if text not in texts:
        texts.append(text)


def save(results: Results, path: Path) -> None:
    """Write the file; a reader sees the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(asdict(results), indent=1) + "\n")
    part.rename(path)


def load(path: Path) -> Results:
    """Read the file."""
    return Results(**json.loads(path.read_text()))


def merged(old: Results, new: Results) -> Results:
    """Return the old results, to which figures of the same machine and servers may be added.

    Raise `DifferentMachineError` where a server or anything of the machine is another one; a
    server that only one of them used is no difference.
    """
    for before, now in ((old.machine, new.machine), (old.servers, new.servers)):
        for name in before.keys() & now.keys():
            if before[name] != now[name]:
                raise DifferentMachineError(
                    f"{name} was {before[name]!r} for the figures that are there, and is "
                    f"{now[name]!r} now; measure everything anew, or write to another --output."
                )
    return replace(old, servers={**old.servers, **new.servers})
