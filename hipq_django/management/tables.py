"""Tables of text, which commands print."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Row = TypeVar("Row")
Columns = dict[str, Callable[[Row], str]]


def table(columns: Columns[Row], rows: Sequence[Row]) -> str:
    """Return the rows as lines below the names of the columns."""
    lines = [[*columns], *([text(row) for text in columns.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
