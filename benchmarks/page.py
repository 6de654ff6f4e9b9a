"""The page docs/benchmarks.md, made from the results."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.results import Results


def write(results: Results, folder: Path) -> Path:
    """Write the page into `folder` and return its path."""
    return folder / "benchmarks.md"
