"""What is wrong with the spec of a graph, or looks wrong. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

ERROR, WARNING = "error", "warning"
MAX_PROBLEMS = 100


class Problem(NamedTuple):
    """One thing that is wrong: where, what, and what to do.

    A graph with a problem of the level "error" is refused; one with warnings only is not.
    """

    path: str
    message: str
    hint: str = ""
    level: str = ERROR

    def __str__(self) -> str:
        before = "" if self.level == ERROR else f"{self.level}: "
        return f"{before}{self.path}: {self.message}{f' {self.hint}' if self.hint else ''}"


def errors_of(problems: Iterable[Problem]) -> list[Problem]:
    """Return the problems for which a graph is refused."""
    return [problem for problem in problems if problem.level == ERROR]


def short(value: Any) -> str:
    """Return a value as it stands in a message."""
    return f"{value!r:.60}"
