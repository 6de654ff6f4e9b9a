"""Ports as code declares them, and as `start` and `set_ports` are given them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hipq_django.domain.redaction import quoted
from hipq_django.domain.serialization import is_storable, json_with_text
from hipq_django.exceptions import alike, nearest_name
from hipq_django.flow.exceptions import (
    InvalidPortError,
    MessageTooLargeError,
    PortTypeError,
)
from hipq_django.flow.values import NOTHING, stored_json

ANY = "*"
TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (float, int),
    "str": (str,),
    "bool": (bool,),
    "list": (list,),
    "dict": (dict,),
}
"""The types of ports, and what Python has for them."""

MAX_NAME_CHARS = 200
_NAME = re.compile(r"[a-zA-Z0-9_]+")
_OPTIONS = ("default", "mode", "channels", "type")


@dataclass(frozen=True)
class PortOptions:
    """What is said of one port."""

    name: str
    type: str = ""
    default: Any = NOTHING
    mode: str = "queue"
    channels: tuple[str, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def has_default(self) -> bool:
        """Whether there is a default, which may be None."""
        return self.default is not NOTHING

    @property
    def columns(self) -> dict[str, Any]:
        """The columns of its row."""
        return {
            "mode": self.mode,
            "type": self.type,
            "has_default": self.has_default,
            "value": self.default if self.has_default else {},
            "meta": dict(self.meta),
        }


def checked_port_name(name: object) -> str:
    """Return the name of a port; raise `InvalidPortError` if it is none."""
    if isinstance(name, str) and len(name) <= MAX_NAME_CHARS and _NAME.fullmatch(name):
        return name
    raise InvalidPortError(
        f"port name {name!r:.100}: use letters a to z, digits and _, at most {MAX_NAME_CHARS} of "
        "them."
    )


def port_options(name: str, options: Mapping[str, Any]) -> PortOptions:
    """Return the options of a port; those that are unknown are kept as `meta`.

    Raise `InvalidPortError` for wrong ones.
    """
    if name != ANY:
        checked_port_name(name)
    if not isinstance(options, Mapping):
        raise InvalidPortError(f"port {name!r}: its options {options!r:.100} are no dict.")
    mode = options.get("mode", "queue")
    if mode not in ("queue", "memory"):
        raise InvalidPortError(f"port {name!r}: mode={mode!r:.100}; give 'queue' or 'memory'.")
    known = PortOptions(
        name,
        type_name(name, options.get("type")),
        mode=mode,
        channels=checked_channels(name, options.get("channels") or ()),
        meta=_checked_meta(name, options),
    )
    default = options.get("default", NOTHING)
    if default is NOTHING:
        return known
    return replace(known, default=checked_message(default, known))


def _checked_meta(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are kept as they are."""
    meta = {key: value for key, value in options.items() if key not in _OPTIONS}
    for option in meta:
        if near := alike(str(option), _OPTIONS):
            raise InvalidPortError(
                f"port {name!r}: unknown option {option!r:.100}, did you mean {near!r}? What you "
                "add to a port needs a name that is less like it."
            )
    stored: dict[str, Any] = stored_json(meta, f"port {name!r}: its options", InvalidPortError)
    return stored


def type_name(port: str, given: Any) -> str:
    """Return the name of a port's type; raise `InvalidPortError` for one that JSON has not."""
    if given is None or given == "":
        return ""
    name = given if isinstance(given, str) else getattr(given, "__name__", str(given))
    if name in TYPES:
        return name
    raise InvalidPortError(
        f"port {port!r}: type {name!r:.100} is none of JSON's{nearest_name(name, TYPES)} "
        f"Known are {', '.join(TYPES)}."
    )


def checked_message(value: Any, port: PortOptions, most: int | None = None) -> Any:
    """Return a message as it is stored; raise `InvalidPortError` where it cannot lie on the port.

    `most` is how many bytes of JSON it may have.
    """
    return message_with_text(value, port, most)[0]


def message_with_text(value: Any, port: PortOptions, most: int | None) -> tuple[Any, str, int]:
    """Return a message as `checked_message` does, its JSON text, and the bytes of that."""
    try:
        stored, text, size = json_with_text(value)
    except ValueError as error:
        raise InvalidPortError(f"port {port.name!r}: the message is not JSON: {error}") from error
    if most is not None and size > most:
        raise MessageTooLargeError(
            f"port {port.name!r}: the message has {size:,} bytes as JSON, at most {most:,} are "
            "taken (setting FLOW: MAX_MESSAGE_BYTES); store it elsewhere and write a reference."
        )
    if not is_of(port.type, stored):
        raise wrong_type(port.name, port.type, _told(value))
    return stored, text, size


def wrong_type(port: str, kind: str, given: str) -> PortTypeError:
    """Return how a message is refused that is not of the type of a port."""
    return PortTypeError(f"port {port!r} takes {kind}, and was given {given}.")


def _told(value: Any) -> str:
    """Return the type of a value, with the value if it is a plain one."""
    name = type(value).__name__
    return name if isinstance(value, list | tuple | dict) else f"{name} {quoted(value)}"


def checked_messages(values: Iterable[Any], port: str) -> Iterable[Any]:
    """Return messages that are written one by one; raise `InvalidPortError` for a single one."""
    if isinstance(values, Iterable) and not isinstance(values, str | bytes | Mapping):
        return values
    raise InvalidPortError(
        f"port {port!r}: write_many({quoted(values)}); give a list of messages, or write one by "
        "write()."
    )


def is_of(kind: str, value: Any) -> bool:
    """Return whether a value is of the type of a port; "" is any."""
    if isinstance(value, bool):
        return kind in ("", "bool")
    return not kind or isinstance(value, TYPES[kind])


def checked_channels(port: str, channels: Sequence[str]) -> tuple[str, ...]:
    """Return the channels of a port, without doubles."""
    if not isinstance(channels, list | tuple):
        raise InvalidPortError(f"port {port!r}: channels={channels!r:.100}: give a list of names.")
    return tuple(dict.fromkeys(map(checked_channel, channels)))


def checked_channel(name: object) -> str:
    """Return the name of a channel without a trailing slash."""
    if isinstance(name, str) and name.startswith("/") and len(name) <= 255 and is_storable(name):
        stored = name.rstrip("/") or "/"
        if "//" not in stored:  # above which there would be channels that nobody means
            return stored
    raise InvalidPortError(
        f"channel {name!r:.100}: a name begins with / and has at most 255 characters, none of them "
        "NUL or a lone surrogate, and no // in it, as in '/orders/new'."
    )


def ancestors(channel: str) -> list[str]:
    """Return a channel and those above it, the deepest first."""
    parts = channel.strip("/").split("/") if channel != "/" else []
    paths = ["/" + "/".join(parts[:count]) for count in range(len(parts), 0, -1)]
    return paths if is_own_channel(channel) else [*paths, "/"]


def is_own_channel(channel: object) -> bool:
    """Return whether flows themselves publish there."""
    return f"{channel}/".startswith("/flow/")


class DeclaredPort:
    """A port as a class attribute of a component; in a run it gives the port itself."""

    direction = "in"

    def __init__(
        self,
        type: Any = None,  # noqa: A002 - the public name
        *,
        default: Any = NOTHING,
        mode: str = "queue",
        channels: Sequence[str] = (),
        name: str | None = None,
        **meta: Any,
    ) -> None:
        self.name = name
        self._given = {"type": type, "mode": mode, "channels": channels, **meta}
        if default is not NOTHING:
            self._given["default"] = default

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = self.name or name

    def __get__(self, run: Any, owner: type) -> Any:
        if run is None:
            return self
        ports = run.inputs if self.direction == "in" else run.outputs
        return ports[self.name]

    @property
    def options(self) -> PortOptions:
        """What it says; raise `InvalidPortError` where that cannot be."""
        return port_options(self.name or "", self._given)


class In(DeclaredPort):
    """An in-port: `type` (int, str, float, bool, list or dict), `default`, `mode`, `channels`.

    With `mode="memory"` a message replaces the one before, and reading does not take it.
    """


class Out(DeclaredPort):
    """An out-port: what is written there lies until it is read, or goes where it is connected."""

    direction = "out"


class AnyIn(In):
    """In-ports that come into being when they are first used, with these options."""

    def __init__(self, type: Any = None, **options: Any) -> None:  # noqa: A002 - as above
        super().__init__(type, **{**options, "name": ANY})


class AnyOut(Out):
    """Out-ports that come into being when they are first used, with these options."""

    def __init__(self, type: Any = None, **options: Any) -> None:  # noqa: A002 - as above
        super().__init__(type, **{**options, "name": ANY})
