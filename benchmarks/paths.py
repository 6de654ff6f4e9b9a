"""Where the benchmark reads and writes."""

from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
FOLDER = ROOT / ".bench"
"""Environments, logs and partial results; ignored by git."""
