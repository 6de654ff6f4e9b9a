"""Options: their names, their defaults, and the values that they may have. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from hipq_django.domain.redaction import quoted
from hipq_django.domain.validation import ABOVE_ZERO
from hipq_django.exceptions import InvalidJobError


class WrongKeyError(ValueError):
    """The dict that was given has a key that it may not have; says so, after "has"."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option of an instance, a queue, a source or flows.

    `check` returns the value that is used, and raises `ValueError` for a wrong one. `rule` says
    which values are allowed, where the check does not say it. A value that `is_secret` is not
    quoted. `wrong_id` is the id of the system check, where it is not that of the other options.
    """

    name: str
    default: Any
    check: Callable[[Any], Any]
    rule: str = ""
    is_secret: bool = False
    wrong_id: str = ""

    @property
    def field(self) -> str:
        """The name of the attribute, or of the column, that has the value."""
        return self.name.lower()

    @property
    def allowed(self) -> str:
        """Which values are allowed, to be read after "give"."""
        return self.rule or str(self.check)

    def checked(self, value: Any, name: str = "") -> Any:
        """Return the value that is used; raise `InvalidJobError`, with a name, for a wrong one."""
        try:
            return self.check(value)
        except ValueError as error:
            text = f"{name or self.field} {quoted(value)}: give {self.allowed}."
            raise InvalidJobError(text) from error


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one place of the setting, and the checks of unknown ones and wrong values."""

    unknown_id: str
    wrong_id: str
    options: tuple[Option, ...]

    def __getitem__(self, name: str) -> Option:
        return next(option for option in self.options if option.name == name)

    @property
    def defaults(self) -> dict[str, Any]:
        """The default of each option by its name."""
        return {option.name: option.default for option in self.options}

    def read(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values that are used, by the names of their attributes."""
        return {o.field: o.check(given.get(o.name, o.default)) for o in self.options}


# Which values are allowed


@dataclass(frozen=True, slots=True)
class Number:
    """Allows the numbers from `low` to `high`, or the whole numbers among them."""

    low: float
    high: float = inf
    whole: bool = False

    def __call__(self, value: Any) -> Any:
        kinds = int if self.whole else int | float
        if isinstance(value, bool) or not isinstance(value, kinds) or not self._has(value):
            raise ValueError(value)
        return value

    def _has(self, value: float) -> bool:
        return self.low <= value <= self.high

    def __str__(self) -> str:
        kind = "a whole number" if self.whole else "a number"
        if self.high == inf:
            return f"{kind} of at least {self.low:,}"
        if self.low == ABOVE_ZERO:
            return f"{kind} above 0, at most {self.high:,}"
        return f"{kind} from {self.low:,} to {self.high:,}"


@dataclass(frozen=True, slots=True)
class Words:
    """Allows some words."""

    words: tuple[str, ...]

    def __call__(self, value: Any) -> str:
        if value not in self.words:
            raise ValueError(value)
        return str(value)

    def __str__(self) -> str:
        *others, last = map(repr, self.words)
        return f"{', '.join(others)} or {last}"


def allowing(is_right: Callable[[Any], bool]) -> Callable[[Any], Any]:
    """Return the check that allows the values of which `is_right` is true."""

    def check(value: Any) -> Any:
        if not is_right(value):
            raise ValueError(value)
        return value

    return check


def or_none(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the check that allows None, too."""
    return lambda value: None if value is None else check(value)


def texts(value: Any) -> tuple[str, ...]:
    """Return a list of texts as a tuple; raise `ValueError` for everything else."""
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise ValueError(value)
    return tuple(value)
