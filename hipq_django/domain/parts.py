"""Several requests, one job: which answers a job expects, and which of them are in. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from hipq_django.exceptions import InvalidJobError

MAX_PARTS: Final = 1_000
MAX_PART_CHARS: Final = 100

UNNAMED: Final = ""
"""Stored where an answer is for the whole job, or is only counted and was not accepted yet."""

_COUNTED: Final = "#"
"""Begins the name under which an answer that is only counted is accepted."""

Expects = int | list[str]
"""How many answers a job expects, or the names of their parts; [] stands for one answer."""

ReceivedParts = list[tuple[str, Any]]
"""The answers that are in, in the order in which they came: part and response."""


class WaitFor:
    """Returned by a handler: the job stays running until several answers are in.

    `WAIT_FOR("front", "back")` names the parts: each answer says which one it is. `WAIT_FOR(3)`
    counts answers without names; the job type is declared with `counted_answers=True` then. Raise
    `InvalidJobError` for what is neither.
    """

    def __init__(self, *parts: int | str) -> None:
        self.expects: Expects = _expects(parts)

    def __repr__(self) -> str:
        shown = [self.expects] if isinstance(self.expects, int) else self.expects
        return f"hipq_django.WAIT_FOR({', '.join(map(repr, shown))})"


WAIT_FOR = WaitFor


def _expects(parts: Sequence[Any]) -> Expects:
    if len(parts) == 1 and isinstance(number := parts[0], int):
        if isinstance(number, bool) or not 1 <= number <= MAX_PARTS:
            raise InvalidJobError(
                f"WAIT_FOR({number!r}): give the number of the answers, 1 to {MAX_PARTS:,}; a "
                "handler that expects none returns its result."
            )
        return number
    if not 0 < len(parts) <= MAX_PARTS:
        raise InvalidJobError(
            f"WAIT_FOR with {len(parts):,} arguments: give the number of the answers, WAIT_FOR(3), "
            f'or the names of their parts, WAIT_FOR("front", "back"), at most {MAX_PARTS:,}.'
        )
    names = [checked_part(part) for part in parts]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidJobError(f"WAIT_FOR: part {twice!r} is named twice; give each part once.")
    return names


def checked_part(part: object) -> str:
    """Return the name of a part: text of 1 to 100 printable characters, not '#' first."""
    usable = isinstance(part, str) and 0 < len(part) <= MAX_PART_CHARS
    # For mypy: it is text.
    if usable and part.isprintable() and not part.startswith(_COUNTED):  # type: ignore[attr-defined]
        return str(part)
    raise InvalidJobError(
        f"part {part!r:.200}: give text of 1 to {MAX_PART_CHARS} printable characters that does "
        f"not begin with {_COUNTED!r}."
    )


def counted_name(number: int) -> str:
    """Return the name under which the next answer is accepted that has none of its own."""
    return f"{_COUNTED}{number}"


def is_wanted(expects: Expects, part: str) -> bool:
    """Return whether an answer of this part is one of those that are expected."""
    return isinstance(expects, int) or part in expects


def is_complete(expects: Expects, parts: Collection[str]) -> bool:
    """Return whether all that is expected is in."""
    if isinstance(expects, int):
        return len(parts) >= expects
    return set(expects) <= set(parts)


def collected(expects: Expects, answers: ReceivedParts) -> Any:
    """Return what the response handler gets: part → response, or a list where they are counted.

    The parts stand in the order of `expects`, behind them others that are in from earlier
    attempts; a list has the order of arrival.
    """
    if isinstance(expects, int):
        return [response for _, response in answers]
    responses = dict(answers)
    first = {part: responses[part] for part in expects if part in responses}
    return first | {p: r for p, r in responses.items() if p not in first}


def progress_of(expects: Expects, parts: Collection[str]) -> str:
    """Return in words how many answers are in, and which parts are missing."""
    if isinstance(expects, int):
        return f"{len(parts)} of {expects} answers are in"
    missing = [part for part in expects if part not in parts]
    text = f"{len(expects) - len(missing)} of {len(expects)} parts are in"
    return f"{text}, missing: {', '.join(map(repr, missing))}" if missing else text
