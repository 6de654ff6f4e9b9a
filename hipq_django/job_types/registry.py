"""What the code has declared: job types and tasks, by instance and name."""

from __future__ import annotations

import sys
import time
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from hipq_django import extensions
from hipq_django.conf.instances import get_instance
from hipq_django.conf.rules import DEFAULT
from hipq_django.exceptions import InvalidJobTypeError, InvalidScheduleError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from hipq_django.job_types.declaration import Declaration

    D = TypeVar("D", bound=Declaration)

_declared: dict[tuple[str, str], Declaration] = {}
_by_alias: dict[tuple[str, str], Declaration] = {}


def register(declared: D) -> D:
    """Register a declaration; raise `InvalidJobTypeError` if another one has one of its names.

    Raise `InvalidScheduleError` if another one has a schedule with the name of one of its own.
    """
    for name in (declared.name, *declared.aliases):
        other = get_declared(declared.instance, name)
        if other is not None and not _is_again(other, declared):
            raise InvalidJobTypeError(_conflict(name, other, declared))
    if declared.name in declared.aliases:
        raise InvalidJobTypeError(
            f"job type {declared.name!r}: it has its own name as an alias; remove that."
        )
    _check_schedules(declared)
    older = _declared.get((declared.instance, declared.name))
    if older is not None:
        forget(older)
    _declared[declared.instance, declared.name] = declared
    _by_alias.update({(declared.instance, alias): declared for alias in declared.aliases})
    sensitive_fields.cache_clear()
    return declared


def get_declared(instance: str, name: str) -> Declaration | None:
    """Return the declaration of a name or an alias, or None if this process does not know it."""
    key = (instance, name)
    return _declared.get(key) or _by_alias.get(key)


FIND_AGAIN_SECONDS = 60.0
"""How long a name is left alone whose code was not found."""

_not_found: dict[tuple[str, str], float] = {}
"""When to look again for the code of a name, by the monotonic clock."""


def find_declared(instance: str, name: str, kind: str) -> Declaration | None:
    """Return the declaration of a name; the extension of its kind is asked where there is none."""
    declared, key = get_declared(instance, name), (instance, name)
    if declared is not None or not kind or time.monotonic() < _not_found.get(key, 0.0):
        return declared
    for extension in extensions.registered:
        if extension.kind == kind and (found := extension.find(instance, name)) is not None:
            return found
    _not_found[key] = time.monotonic() + FIND_AGAIN_SECONDS
    return None


def get_all_declared(instance: str) -> list[Declaration]:
    """Return every declaration of an instance."""
    return [declared for (inst, _), declared in _declared.items() if inst == instance]


def has_sensitive(instance: str | None = None) -> bool:
    """Return whether this process knows a job type, of an instance or any, with sensitive fields.

    Then nothing is quoted of an error that may be about any job.
    """
    return any(
        declared.sensitive for (inst, _), declared in _declared.items() if instance in (None, inst)
    )


@cache  # until something else is declared
def sensitive_fields(instance: str) -> tuple[str, ...]:
    """Return the sensitive fields of all that this process knows of an instance."""
    fields = {name for declared in get_all_declared(instance) for name in declared.sensitive}
    return tuple(sorted(fields))


def known_names(instance: str) -> set[str]:
    """Return the names, aliases included, whose jobs this process has code for."""
    return {name for inst, name in (*_declared, *_by_alias) if inst == instance}


def names_of(instance: str, name: str) -> tuple[str, ...]:
    """Return all names of jobs that the code of this name runs, the given one first."""
    declared = get_declared(instance, name)
    if declared is None or not declared.aliases:
        return (name,)
    return (name, *(other for other in (declared.name, *declared.aliases) if other != name))


def forget(declared: Declaration) -> None:
    """Remove a declaration; for tests that declare their own types."""
    _declared.pop((declared.instance, declared.name), None)
    for alias in declared.aliases:
        _by_alias.pop((declared.instance, alias), None)
    sensitive_fields.cache_clear()


class Declared(NamedTuple):
    """What was declared at a moment, and which modules were imported."""

    by_name: dict[tuple[str, str], Declaration]
    by_alias: dict[tuple[str, str], Declaration]
    modules: frozenset[str]


def remember() -> Declared:
    """Return what is declared now, for `restore`."""
    return Declared({**_declared}, {**_by_alias}, frozenset(sys.modules))


def restore(before: Declared) -> None:
    """Forget what a test has declared since.

    What modules declare that were imported since is kept: they are not imported again.
    """
    for known, then in ((_declared, before.by_name), (_by_alias, before.by_alias)):
        of_modules = {k: made for k, made in known.items() if made.__module__ not in before.modules}
        known.clear()
        known.update({**of_modules, **then})
    sensitive_fields.cache_clear()


def declared_queues(instance: str) -> set[str]:
    """Return the names of the queues that need no job to exist."""
    of_types = {declared.queue for declared in get_all_declared(instance)}
    return {DEFAULT, *get_instance(instance).queues, *of_types}


def _conflict(name: str, other: Declaration, declared: Declaration) -> str:
    return (
        f"job type {name!r} is declared twice in instance {other.instance!r}, as a name or an "
        f"alias: by {_path_of(other.handler)} and {_path_of(declared.handler)}; rename one of them."
    )


def _check_schedules(declared: Declaration) -> None:
    for name in declared.schedules:
        for other in get_all_declared(declared.instance):
            if name in other.schedules and other.name != declared.name:
                raise InvalidScheduleError(
                    f"schedule {name!r} is declared twice in instance {other.instance!r}: by job "
                    f"type {other.name!r} ({_path_of(other.handler)}) and job type "
                    f"{declared.name!r} ({_path_of(declared.handler)}); rename one of them."
                )


def _is_again(known: Declaration, declared: Declaration) -> bool:
    """Return whether this is the known declaration, whose module was imported again."""
    return known.name == declared.name and _path_of(known.handler) == _path_of(declared.handler)


def _path_of(handler: Callable[..., Any]) -> str:
    return f"{handler.__module__}.{handler.__qualname__}"
