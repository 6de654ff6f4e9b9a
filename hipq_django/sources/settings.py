"""The settings of a source, and the code that they name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.utils.module_loading import import_string

from hipq_django.exceptions import ConfigurationError
from hipq_django.sources.protocol import MessageSource, Received

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
        """Create the source; raise `ConfigurationError` if its class or options are wrong."""
        source: MessageSource = _source_class(self.source, self.options)(**self.options)
        return source

    def map_function(self) -> Callable[[Received], Any]:
        """Return the map function; raise `ConfigurationError` if it cannot be used."""
        return _callable("MAP", self.map)


def check_code(settings: SourceSettings) -> None:
    """Raise `ConfigurationError` unless class and function exist and accept their arguments."""
    _source_class(settings.source, settings.options)
    settings.map_function()


def _source_class(path: str, options: Mapping[str, Any]) -> Callable[..., Any]:
    source = _callable("SOURCE", path)
    lacking = [name for name in _METHODS if not callable(getattr(source, name, None))]
    if isinstance(source, type) and lacking:
        raise ConfigurationError(
            f"SOURCE {path!r} has no method {', '.join(lacking)}; see "
            "hipq_django.sources.MessageSource."
        )
    try:
        inspect.signature(source).bind(**options)
    except TypeError as error:
        raise ConfigurationError(f"OPTIONS do not fit SOURCE {path!r}: {error}.") from error
    return source


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
