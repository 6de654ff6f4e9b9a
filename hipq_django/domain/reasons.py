"""Why a job is not running, as it is said to people. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason why a job is not running; `code` is stable, `text` is for people.

    The text is in the language that was active when the reason was given.
    """

    code: str
    text: str

    def __str__(self) -> str:
        return self.text


# What keeps one job alone from starting, as it is noted at its queue, where others read it


def cannot_start(pk: int, why: str) -> str:
    """Say that nothing can start a job here."""
    return f"job {pk} cannot start: {why}"


def not_let_start(pk: int, why: str) -> str:
    """Say that the database refuses the start of a job."""
    return f"the database does not let job {pk} start: {why}"


_OF_ONE_JOB = re.compile(r"(?:the database does not let )?job (\d+)(?: cannot start| start): ")


def concerns(problem: str, pk: int) -> bool:
    """Return whether a problem of a queue keeps this job from starting, not only another one."""
    of_one = _OF_ONE_JOB.match(problem)
    return of_one is None or int(of_one[1]) == pk
