"""At most one job with the same arguments: what is compared, and for how long. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from hipq_django.domain.validation import MAX_KEY_CHARS
from hipq_django.exceptions import InvalidJobError, nearest_name

Scope = Literal["live", "waiting", "kept"]

KEY_FIELDS: Final[dict[str, str]] = {
    "live": "job_key",
    "waiting": "waiting_key",
    "kept": "kept_key",
}
"""The field that keeps jobs of each scope apart: of live jobs, of those that have not started, or
of all that still exist."""


class Unique(NamedTuple):
    """The uniqueness of a type's jobs; `on` are the arguments that are compared, or all."""

    scope: Scope
    on: tuple[str, ...] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return it as it is stored."""
        return {"scope": self.scope, "on": self.on and list(self.on)}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Unique:
        """Return a stored one."""
        return cls(stored["scope"], stored["on"] and tuple(stored["on"]))

    def compares(self, job_data: Any) -> bool:
        """Return whether the data have anything that is compared."""
        return self.on is None or (isinstance(job_data, Mapping) and bool({*self.on} & {*job_data}))

    def key(self, job_data: Any, given: str | None) -> str:
        """Return the key of a job: the given one, or a digest of the compared arguments."""
        if given is not None:
            return given
        counted: Any = job_data
        if self.on is not None:
            data = job_data if isinstance(job_data, Mapping) else {}
            counted = {name: data[name] for name in self.on if name in data}
        text = json.dumps(counted, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()


def checked_unique(unique: object, on: object) -> Unique | None:
    """Return `unique=` and `unique_on=`, checked; raise `InvalidJobError` if they are invalid."""
    if unique is True:
        unique = "live"
    if unique in (None, False):
        if on is not None:
            raise InvalidJobError(f"unique_on={on!r} without unique; add unique='live'.")
        return None
    if not isinstance(unique, str) or unique not in KEY_FIELDS:
        near = nearest_name(str(unique), KEY_FIELDS)
        raise InvalidJobError(f"unique={unique!r:.100} is unknown{near}")
    return Unique(unique, _checked_on(on))  # type: ignore[arg-type]  # one of the scopes


def _checked_on(on: object) -> tuple[str, ...] | None:
    if on is None:
        return None
    names = tuple(on) if isinstance(on, list | tuple) else ()
    if not names or not all(isinstance(name, str) for name in names):
        raise InvalidJobError(f'unique_on={on!r:.100}: give a list of names, ["shop"].')
    return names


def check_key_may_change(unique: Unique | None, job_type: str, said: str) -> None:
    """Raise `InvalidJobError` if the keys of a type's live jobs keep others away."""
    if unique is not None and KEY_FIELDS[unique.scope] == "job_key":
        raise InvalidJobError(
            f"{said}: job type {job_type!r} has unique={unique.scope!r}: the key of a job keeps "
            "others with its arguments away. Let the other system answer by callback_url(job), or "
            "declare unique='kept'."
        )


def check_key_stays(said: str, queue: str, of_type: str) -> None:
    """Raise `InvalidJobError` if a job with a key is not in the queue of its type.

    Where queues have tables of their own, keys are unique in each of them only.
    """
    if queue != of_type:
        raise InvalidJobError(
            f"{said}: a job with a key stays in its type's queue {of_type!r}, because queues have "
            "tables of their own."
        )


def checked_unique_key(key: object) -> str:
    """Return a key that is given instead of the arguments."""
    if isinstance(key, str) and 0 < len(key) <= MAX_KEY_CHARS and key.isprintable():
        return str.__str__(key)
    raise InvalidJobError(
        f"unique_key {key!r:.100}: give text of 1 to {MAX_KEY_CHARS} printable characters."
    )
