"""Why a job is not running, as it is said to people. Pure."""

from __future__ import annotations

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
