"""Plain values of flows: `NOTHING`, packets, and the effects of a run. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import Enum
from typing import Any, Final, NamedTuple

from hipq_django.domain.redaction import quoted
from hipq_django.domain.serialization import encode_json, to_json
from hipq_django.flow.exceptions import FlowError


class _Nothing(Enum):
    NOTHING = "NOTHING"

    def __repr__(self) -> str:
        return "flow.NOTHING"

    def __bool__(self) -> bool:
        return False


NOTHING: Final = _Nothing.NOTHING
"""The value of an empty port; JSON's null is another one."""

SIDES: Final = {"in": "inputs", "out": "outputs"}
"""The names of the two sides of a node, by the direction of their ports."""

STAGE: Final = "flow.jobs"
"""The component that makes messages jobs of some type."""

WIDGET: Final = "flow.widget"
"""The component that is a page at which somebody works."""

MAX_VOLUME: Final = 16_000_000
"""How many bytes of large data and of output a run has before it leaves the rest to the next."""

MAX_HELD: Final = 4_000_000
"""How many bytes a component that waits has in its state before it takes no more."""

DEFAULT_LIMIT: Final = 100
MAX_LIMIT: Final = 100_000
"""How many jobs a stage has at a time."""


class Rest:
    """The status of a node while no run of it is due."""

    COMPLETED = "completed"
    SUSPENDED = "suspended"
    FAILED = "failed"
    TERMINATING = "terminating"
    TERMINATED = "terminated"


RESTS: Final = ("completed", "suspended", "failed", "terminating", "terminated")
RUNS_BY_ITSELF: Final = ("completed", "suspended")
"""A node in any other rest is run by force, or to shut down, only."""


def is_same(one: Any, other: Any) -> bool:
    """Whether two values are the same as JSON: true is not 1, which are equal in Python."""
    if NOTHING in (one, other):
        return one is other
    return as_text(one) == as_text(other)


def as_text(value: Any) -> str:
    """Return a value as JSON that is the same text for all that is the same value."""
    return json.dumps(value, sort_keys=True)


def stored_json(value: Any, where: str, kind: type[FlowError] = FlowError) -> Any:
    """Return a copy of a value as JSON holds it; raise a `kind` of `FlowError` if none can."""
    try:
        return to_json(value)
    except ValueError as error:
        raise kind(f"{where}: {quoted(value)} cannot be stored as JSON: {error}.") from error


def size_of(value: Any) -> int:
    """Return how many bytes a value has as JSON."""
    return len(encode_json(value).encode())


class Packet(NamedTuple):
    """One message as it was read. `id` is the same in a retry; it is 0 for a default."""

    id: int
    value: Any
    context: dict[str, Any]
    time: datetime | None


class PortName(NamedTuple):
    """Which port."""

    node: int
    direction: str
    name: str


@dataclass(slots=True)
class Write:
    """One value for a port, or for the subscribers of a channel."""

    place: PortName | int | str
    """The port or, where it is delivered, the id of that; or the channel."""
    value: Any
    context: Mapping[str, Any] = field(default_factory=dict)
    as_default: bool = False
    notify: bool = True
    log: bool = True
    text: str = ""
    """The value as `json_with_text` has made it; empty: it has to be encoded yet."""

    def as_json(self) -> dict[str, Any]:
        """Return it as it is stored."""
        return {name: getattr(self, name) for name in _STORED_OF_WRITE}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Write:
        """Return a stored one."""
        place = stored["place"]
        return cls(**{**stored, "place": place if isinstance(place, str) else PortName(*place)})


_STORED_OF_WRITE = [field.name for field in fields(Write) if field.name != "text"]

Verb = tuple[str, list[Any], dict[str, Any]]
"""A change of nodes or ports: its name, arguments and options."""


@dataclass(slots=True)
class Effects:
    """The changes that a run makes: applied when its attempt ends, or never.

    All of it is JSON, because it outlives the process of a run that waits for an answer.
    """

    taken: list[int] = field(default_factory=list)
    """The ids of the messages that it has read."""
    acts: list[Write | Verb] = field(default_factory=list)
    """Writes, publications and verbs, in the order of the code."""
    state: dict[str, Any] = field(default_factory=dict)
    unset: list[str] = field(default_factory=list)
    logs: list[dict[str, Any]] = field(default_factory=list)
    started: bool = False
    """Whether it has called `startup`."""

    def __bool__(self) -> bool:
        return any((self.taken, self.acts, self.state, self.unset, self.logs))

    @property
    def verbs(self) -> list[Verb]:
        """The verbs among the acts."""
        return [act for act in self.acts if not isinstance(act, Write)]

    def as_json(self) -> dict[str, Any]:
        """Return the effects as they are stored."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        acts = [act.as_json() if isinstance(act, Write) else act for act in self.acts]
        return {**values, "acts": acts}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Effects:
        """Return stored effects; an older release has stored writes and verbs apart."""
        values = {field.name: stored[field.name] for field in fields(cls) if field.name in stored}
        acts = stored.get("acts") or [*stored.get("writes", ()), *stored.get("verbs", ())]
        return cls(**{**values, "acts": [_act_from_json(act) for act in acts]})

    def add(self, later: Effects) -> None:
        """Add later effects."""
        self.taken += later.taken
        self.acts += later.acts
        if later.unset:
            self.unset_state(tuple(later.unset))
        if later.state:
            self.set_state(later.state)
        self.logs += later.logs
        self.started = self.started or later.started

    def set_state(self, values: dict[str, Any]) -> None:
        """Note new values of the state."""
        self.state |= values
        self.unset = [key for key in self.unset if key not in values]

    def unset_state(self, keys: tuple[str, ...]) -> None:
        """Note that values of the state are gone."""
        for key in keys:
            self.state.pop(key, None)
        self.unset += [key for key in keys if key not in self.unset]

    def changed(self, state: dict[str, Any]) -> dict[str, Any]:
        """Return a state with the changes of this run."""
        kept = {key: value for key, value in state.items() if key not in self.unset}
        return kept | self.state


def _act_from_json(stored: Any) -> Write | Verb:
    if isinstance(stored, dict):
        return Write.from_json(stored)
    verb, args, options = stored
    return Write.from_json(args[0]) if verb == "write" else (verb, args, options)
