"""The settings of a source: keys, defaults and rules."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.module_loading import import_string

from hipq_django.exceptions import ConfigurationError
from hipq_django.sources.protocol import MessageSource, Received

SOURCE_DEFAULTS: dict[str, Any] = {"SOURCE": "", "MAP": "", "OPTIONS": {}, "BATCH_SIZE": 500}
MAX_BATCH_SIZE = 10_000

_METHODS = ("receive", "acknowledge", "close")


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """One source of the setting; `source` and `map` are dotted paths."""

    name: str
    source: str
    map: str
    options: Mapping[str, Any]
    batch_size: int

    def open(self) -> MessageSource:
        """Create the source; raise `ConfigurationError` if its class or options are wrong.

        What a function makes can be looked at only here.
        """
        source: MessageSource = _source_class(self.source, self.options)(**self.options)
        if lacking := _lacking(source):
            raise ConfigurationError(
                f"SOURCE {self.source!r} made an object of type {type(source).__name__}, which has "
                f"no method {lacking}; see hipq_django.sources.MessageSource."
            )
        return source

    def map_function(self) -> Callable[[Received], Any]:
        """Return the map function; raise `ConfigurationError` if it cannot be used."""
        return _callable("MAP", self.map)


def source_settings(name: str, values: Mapping[str, Any]) -> SourceSettings:
    """Return the settings of a source that was checked."""
    values = {**SOURCE_DEFAULTS, **values}
    return SourceSettings(name, **{key.lower(): values[key] for key in SOURCE_DEFAULTS})


def wrong_values(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield a text for each option whose value is invalid."""
    for key in ("SOURCE", "MAP"):
        path = values.get(key, "")
        if not isinstance(path, str) or "." not in path:
            yield f"{key} is {path!r}, not a dotted path."
    options = values.get("OPTIONS", {})
    if not isinstance(options, dict) or not all(isinstance(name, str) for name in options):
        # The value is not shown, because it contains passwords.
        yield f"OPTIONS is a {type(options).__name__}, not a dict with text as keys."
    size = values.get("BATCH_SIZE", 1)
    whole = isinstance(size, int) and not isinstance(size, bool)
    if not whole or not 1 <= size <= MAX_BATCH_SIZE:
        yield f"BATCH_SIZE is {size!r}, not a whole number from 1 to {MAX_BATCH_SIZE:,}."


def check_code(settings: SourceSettings) -> None:
    """Raise `ConfigurationError` unless class and function exist and accept their arguments."""
    _source_class(settings.source, settings.options)
    settings.map_function()


def _source_class(path: str, options: Mapping[str, Any]) -> Callable[..., Any]:
    source = _callable("SOURCE", path)
    if isinstance(source, type) and (lacking := _lacking(source)):
        raise ConfigurationError(
            f"SOURCE {path!r} has no method {lacking}; see hipq_django.sources.MessageSource."
        )
    try:
        inspect.signature(source).bind(**options)
    except TypeError as error:
        raise ConfigurationError(f"OPTIONS do not fit SOURCE {path!r}: {error}.") from error
    return source


def _lacking(source: object) -> str:
    return ", ".join(name for name in _METHODS if not callable(getattr(source, name, None)))


def imported(what: str, path: str) -> Any:
    """Import what a path of the setting names; raise `ConfigurationError` if that fails."""
    try:
        return import_string(path)
    except Exception as error:  # importing runs the project's code
        why = error if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
        raise ConfigurationError(f"{what} {path!r} cannot be imported: {why}.") from error


def _callable(what: str, path: str) -> Callable[..., Any]:
    found = imported(what, path)
    if not callable(found):
        raise ConfigurationError(f"{what} {path!r} is {found!r:.100}, which cannot be called.")
    return found  # type: ignore[no-any-return]  # imported by its path
