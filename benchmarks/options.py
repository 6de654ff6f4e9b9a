"""The options that the commands have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def add_run_options(parser: argparse.ArgumentParser, rounds: int) -> None:
    """Add the options of a run; `rounds` is how many rounds it has by itself."""
    parser.add_argument(
        "--rounds", type=int, help=f"How many rounds; default: {rounds}, or 1 with --quick."
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="Use small sizes, to see whether it works, not how fast it is.",
    )
    parser.add_argument(
        "--resume", action="store_true", help="Continue the same run, which was interrupted."
    )
