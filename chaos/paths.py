"""Where the crash tests read and write."""

from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
FILE = "crash-tests.json"
"""The results, beside the page that is made from them."""
PAGE = "crash-tests.md"
FOLDER = ROOT / ".chaos"
"""Logs, ledgers and partial results; ignored by git."""
