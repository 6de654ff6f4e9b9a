"""Masks the values of sensitive fields. Pure.

The database holds everything as it came and as it was raised. It is masked at two doors: `row=` of
`hipq_django.events` for the log, and `as_shown` for all else that people read. Where the page of a
job is shown, `hipq_django.models.masking` also knows its answers.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote, quote_plus

from hipq_django.domain.class_names import with_text
from hipq_django.domain.serialization import CUT, error_of
from hipq_django.domain.tokens import MASK, without_tokens
from hipq_django.events import Fields
from hipq_django.exceptions import InvalidJobError

MAX_DEPTH = 1_000
"""Nothing that is stored is deeper."""

MIN_CHARS = 3
"""Shorter values are not searched for in texts: they would be found everywhere."""

MIN_CHARS_ANYWHERE = 6
"""Shorter values are searched for as whole words only."""

MAX_QUOTED_CHARS = 200
"""A longer value is not quoted in an error that may be masked."""

_CUT_BEHIND = re.compile(r"… \(\d+ characters\)$")
"""How a text ends that was cut by `storable_text`."""


class WithoutTokens(logging.Filter):
    """Keeps the tokens of callback URLs out of the lines of a logger or handler.

    For access logs, which contain the path before the request reaches Django.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Let every record pass, without its tokens."""
        record.msg = _without_tokens(record.msg)
        if isinstance(record.args, tuple):
            record.args = tuple(map(_without_tokens, record.args))
        elif isinstance(record.args, dict):
            record.args = copy(record.args)  # some server's own kind of dict
            record.args.update({n: _without_tokens(value) for n, value in record.args.items()})
        return True


def _without_tokens(value: Any) -> Any:
    return without_tokens(str(value)) if isinstance(value, str | Fields) else value


def quoted(value: object) -> str:
    """Return a value as an error quotes it: whole or not at all.

    A part of a sensitive value would not be found where the error is masked.
    """
    text = repr(value)
    if len(text) <= MAX_QUOTED_CHARS:
        return text
    return f"<{type(value).__name__}, too long to be shown>"


def without_masks(value: Any) -> Any:
    """Return JSON that replaces other JSON as a whole; raise `InvalidJobError` where it has masks.

    They are put back nowhere: whoever may move a value beside others can find it out.
    """
    if MASK in json.dumps(value, ensure_ascii=False):
        raise InvalidJobError(
            f"{MASK} stands for a value that is not shown: replace all that has it, or leave it "
            "unchanged."
        )
    return value


def checked_fields(names: object) -> tuple[str, ...]:
    """Return the names of sensitive fields; raise `InvalidJobError` unless they are a list."""
    if isinstance(names, list | tuple) and all(_is_field(name) for name in names):
        return tuple(map(str.__str__, names))
    raise InvalidJobError(
        f'sensitive={names!r:.200}: give a list of names such as ["card", "customer.iban"].'
    )


def _is_field(name: object) -> bool:
    return isinstance(name, str) and name.isprintable() and all(name.split("."))


@dataclass(frozen=True, slots=True)
class Redactor:
    """Knows the sensitive fields of a job type, and their values in one job.

    A name such as "card" is that key at any depth; "customer.iban" is the key "iban" directly
    under "customer", at any depth; lists in between are ignored, and so is case.
    """

    fields: tuple[str, ...] = ()
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    key: str = ""
    """The name of a place, such as a port, that may be a sensitive field itself."""

    def covers(self, name: str) -> bool:
        """Return whether all that a sensitive field of another job type names is masked."""
        return self._is_sensitive(f".{name}")

    def knowing(self, *values: Any) -> Redactor:
        """Return a redactor that also masks, in texts, the sensitive values of `values`."""
        if not self.fields:
            return self
        texts = (_text_of(secret) for value in values for secret in self._secrets(value))
        found = (text for text in texts if len(text) >= MIN_CHARS)
        return replace(self, secrets=self.secrets.union(found))

    def knowing_all(self, value: Any) -> Redactor:
        """Return a redactor that also knows the shortest values, for a text made from them."""
        if not self.fields:
            return self
        texts = (_text_of(secret) or repr(secret) for secret in self._secrets(value))
        return replace(self, secrets=self.secrets.union(texts))

    def mask(self, value: Any) -> Any:
        """Return a copy of JSON, or of a text, that may be shown."""
        if not self.fields:
            return value
        value = {self.key: value} if self.key else value
        masked = self.knowing(value)._masked(value)
        return next(iter(masked.values())) if self.key else masked

    def mask_text(self, text: str) -> str:
        """Return a text without the known values, however the text quotes them."""
        return _without_any(text, self._spelled())

    def mask_error(self, error: BaseException) -> BaseException:
        """Return an exception that may be logged, with the masked text."""
        if not self.fields:
            return error
        return with_text(error, self.mask_text(error_of(error)))

    def _spelled(self) -> dict[int, set[str]]:
        """Return the known values as they are spelled in texts, by length, the longest first."""
        found: dict[int, set[str]] = {}
        for secret in self.secrets:
            for spelling in _spellings(secret):
                found.setdefault(len(spelling), set()).add(spelling)
        return dict(sorted(found.items(), reverse=True))

    def _masked(self, value: Any) -> Any:
        """Without recursion: Python's own limit is lower than that of stored values."""
        root, spelled = [value], self._spelled()
        left: list[tuple[Any, Any, str, int]] = [(root, 0, "", 0)]
        while left:
            inside, key, path, depth = left.pop()
            shown = inside[key]
            if not isinstance(shown, list | dict):
                inside[key] = self._without_known(shown, spelled)
                continue
            if depth > MAX_DEPTH:
                raise RecursionError("the value contains itself")
            inside[key] = copied = _copied(shown, spelled)
            left += ((copied, *place, depth + 1) for place in self._places(shown, copied, path))
        return root[0]

    def _without_known(self, value: Any, spelled: dict[int, set[str]]) -> Any:
        if isinstance(value, str):
            return _without_any(value, spelled)
        return MASK if self.secrets and _text_of(value) in self.secrets else value

    def _places(self, stored: Any, copied: Any, path: str) -> Iterator[tuple[Any, str]]:
        """Yield where in a list or dict there may be something to mask; mask what is sensitive."""
        if isinstance(stored, list):
            yield from ((index, path) for index in range(len(stored)))
            return
        for key, shown in zip(stored, copied, strict=True):
            inner = self._below(path, key)
            if self._is_sensitive(inner):
                copied[shown] = MASK
            else:
                yield shown, inner

    def _below(self, path: str, key: Any) -> str:
        """Return the keys from the top, each with a dot before it: as much of their end as counts.

        The whole of each place in a deep value would be many times longer than the value.
        """
        return f"{path}.{key}"[-_longest(self.fields) :]

    def _is_sensitive(self, path: str) -> bool:
        return path.casefold().endswith(_endings(self.fields))

    def _secrets(self, value: Any) -> Iterator[Any]:
        """Yield the values of sensitive fields.

        Without recursion: a handler may have made `value` contain itself.
        """
        seen: set[int] = set()
        left: list[tuple[Any, str, bool]] = [(value, "", False)]
        while left:
            value, path, sensitive = left.pop()
            if not isinstance(value, dict | list | tuple):
                if sensitive:
                    yield value
            elif id(value) not in seen:
                seen.add(id(value))
                left += self._inside(value, path, sensitive)

    def _inside(self, value: Any, path: str, sensitive: bool) -> Iterable[tuple[Any, str, bool]]:
        if not isinstance(value, dict):
            return [(element, path, sensitive) for element in value]
        inner = [(element, self._below(path, key)) for key, element in value.items()]
        return [(e, below, sensitive or self._is_sensitive(below)) for e, below in inner]


@lru_cache
def _endings(fields: tuple[str, ...]) -> tuple[str, ...]:
    """Return how the path of a sensitive field ends, in the case that all are compared in."""
    return tuple(f".{name.casefold()}" for name in fields)


@lru_cache
def _longest(fields: tuple[str, ...]) -> int:
    """Return how much of a path can count: no character becomes less than one by its case."""
    return max(map(len, _endings(fields)))


NOTHING_SENSITIVE = Redactor()


class HasSecrets(Protocol):
    """A row, or what stands for one, with values that people must not read."""

    @property
    def redactor(self) -> Redactor:
        """What masks them."""


class Masking(NamedTuple):
    """What has secrets, and is no row."""

    redactor: Redactor


NOBODY = Masking(NOTHING_SENSITIVE)


def as_shown(row: HasSecrets, value: Any) -> Any:
    """Return JSON, a text or an exception about a row without its sensitive values."""
    if isinstance(value, BaseException):
        return row.redactor.mask_error(value)
    return row.redactor.mask(value)


def without_fields(value: Any, fields: tuple[str, ...]) -> Any:
    """Return JSON without the values of fields."""
    return Redactor(fields).mask(value)


def without_values(text: str, fields: tuple[str, ...], data: Any) -> str:
    """Return a text that was made from data, without the values, however short, of fields."""
    return Redactor(fields).knowing_all(data).mask_text(text)


def _text_of(value: Any) -> str:
    """Return a value as text; '' if it would be found everywhere."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return ""
    return str(value).strip()


def _spellings(secret: str) -> set[str]:
    """Return the forms of a value in texts: as it is, in a repr, in JSON, in a URL."""
    return {
        secret,
        repr(secret)[1:-1],
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        quote(secret, safe="", errors="replace"),
        quote_plus(secret, errors="replace"),
    }


def _copied(value: Any, spelled: dict[int, set[str]]) -> Any:
    """Return a copy of a list or dict, whose keys may be shown: the same number, in their order."""
    if isinstance(value, list):
        return copy(value)
    copied: dict[Any, Any] = {}
    for key, element in value.items():
        shown = _without_any(key, spelled) if isinstance(key, str) else key
        while shown in copied:
            shown = f"{shown} {len(copied) + 1}"
        copied[shown] = element
    return copied


def _without_any(text: str, spelled: dict[int, set[str]]) -> str:
    for size, spellings in spelled.items():
        if size <= len(text):
            for spelling in _found(text, size, spellings):
                text = _without(text, spelling)
    return _without_parts(text, max(spelled)) if spelled else text


def _without_parts(text: str, longest: int) -> str:
    """Leave out where a text was cut as much as may be a part of a value."""
    if cut := _CUT_BEHIND.search(text):
        text = text[: max(0, cut.start() - longest)] + cut[0]
    return CUT + text[len(CUT) + longest :] if text.startswith(CUT) else text


def _found(text: str, size: int, spellings: set[str]) -> Iterable[str]:
    """Return which of the spellings of one length are in a text; of many, by all of its parts.

    Else rows that each have a value of their own would be searched for those of all others.
    """
    if len(spellings) <= len(text):
        return [spelling for spelling in spellings if spelling in text]
    parts = (text[start : start + size] for start in range(len(text) - size + 1))
    return spellings.intersection(parts)


def _without(text: str, secret: str) -> str:
    if len(secret) >= MIN_CHARS_ANYWHERE:
        return text.replace(secret, MASK)
    return re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", MASK, text)
