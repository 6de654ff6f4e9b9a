"""Where the benchmark reads and writes."""

from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
FILE = "benchmarks.json"
"""The results, beside the page that is made from them."""
FOLDER = ROOT / ".bench"
"""Environments, logs and partial results; ignored by git."""
