"""Several requests, one job: which answers a job expects, and which have come. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from django.utils.translation import gettext as _

from hipq_django.exceptions import InvalidJobError

MAX_PARTS: Final = 1_000
MAX_PART_CHARS: Final = 100

UNNAMED: Final = ""
"""Stored if an answer is for the whole job, or is counted and not accepted yet."""

_COUNTED: Final = "#"
"""The first character of the name under which a counted answer is accepted."""

Expects = int | list[str]
"""How many answers a job expects, or the names of their parts; [] means one answer."""

ReceivedParts = list[tuple[str, Any]]
"""The answers that have come, in their order of arrival: part and response."""


class WaitFor:
    """Returned by a handler: the job stays running until several answers have come.

    `WAIT_FOR("front", "back")` names the parts: each answer says which one it is. `WAIT_FOR(3)`
    counts answers without names; then declare the job type with `counted_answers=True`. Raise
    `InvalidJobError` for anything else.
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
        return int.__int__(number)
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
    if usable and part.isprintable() and not part.startswith(_COUNTED):  # type: ignore[attr-defined]  # it is text
        return str.__str__(part)
    raise InvalidJobError(
        f"part {part!r:.200}: give text of 1 to {MAX_PART_CHARS} printable characters that does "
        f"not begin with {_COUNTED!r}."
    )


def counted_name(number: int) -> str:
    """Return the name under which the next answer without a name is accepted."""
    return f"{_COUNTED}{number}"


def is_wanted(expects: Expects, part: str) -> bool:
    """Return whether an answer of this part is one of those that are expected."""
    return isinstance(expects, int) or part in expects


def is_complete(expects: Expects, parts: Collection[str]) -> bool:
    """Return whether all expected answers have come."""
    if isinstance(expects, int):
        return len(parts) >= expects
    return set(expects) <= set(parts)


def collected(expects: Expects, answers: ReceivedParts) -> Any:
    """Return the response handler's argument: part → response, or a list of counted answers.

    The parts are in the order of `expects`, followed by others from earlier attempts; a list is in
    the order of arrival.
    """
    if isinstance(expects, int):
        return [response for _, response in answers]
    responses = dict(answers)
    first = {part: responses[part] for part in expects if part in responses}
    return first | {p: r for p, r in responses.items() if p not in first}


def progress_of(expects: Expects, parts: Collection[str]) -> str:
    """Return in words how many answers have come, and which parts are missing.

    In the active language.
    """
    if isinstance(expects, int):
        text = _("answers received: %(count)s of %(expected)s")
        return text % {"count": len(parts), "expected": expects}
    missing = [part for part in expects if part not in parts]
    text = _("parts received: %(count)s of %(expected)s, missing: %(missing)s")
    if not missing:
        text = _("parts received: %(count)s of %(expected)s")
    values = {"count": len(expects) - len(missing), "expected": len(expects)}
    return text % {**values, "missing": ", ".join(map(repr, missing))}
