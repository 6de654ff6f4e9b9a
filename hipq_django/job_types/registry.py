"""What the code has declared: job types and tasks, by instance and name; and what it has not."""

from __future__ import annotations

import sys
import time
from functools import cache
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from hipq_django import events
from hipq_django.conf.instances import get_instance
from hipq_django.conf.rules import DEFAULT
from hipq_django.domain.redaction import Redactor
from hipq_django.exceptions import (
    InvalidJobError,
    InvalidJobTypeError,
    InvalidScheduleError,
    nearest_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
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
    redactor_of_declared.cache_clear()
    return declared


def get_declared(instance: str, name: str) -> Declaration | None:
    """Return the declaration of a name or an alias, or None if this process does not know it."""
    key = (instance, name)
    return _declared.get(key) or _by_alias.get(key)


FIND_AGAIN_SECONDS = 60.0
"""How long a name is left alone whose code was not found."""

_finders: dict[str, Callable[[str, str], Declaration | None]] = {}
_not_found: dict[tuple[str, str], float] = {}
"""When to look again for the code of a name, by the monotonic clock."""


def add_finder(kind: str, finder: Callable[[str, str], Declaration | None]) -> None:
    """Let `finder(instance, name)` find, and register, the code of job types of a kind."""
    _finders[kind] = finder


_readers: list[Callable[[str, str], str]] = []
"""Who reads the kind of a job type in its row."""


def read_kinds_by(reader: Callable[[str, str], str]) -> None:
    """Let `reader(instance, name)` say of which kind a job type is that others have declared."""
    _readers[:] = [reader]


def find_declared(instance: str, name: str, kind: str) -> Declaration | None:
    """Return the declaration of a name, which is looked for if the kind says how."""
    declared, key = get_declared(instance, name), (instance, name)
    if declared is not None or kind not in _finders:
        return declared
    if time.monotonic() < _not_found.get(key, 0.0):
        return None
    found = _finders[kind](instance, name)
    if found is None:
        _not_found[key] = time.monotonic() + FIND_AGAIN_SECONDS
    return found


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
def redactor_of_declared(instance: str) -> Redactor:
    """Return what masks the sensitive fields of all that this process knows of an instance."""
    fields = {name for declared in get_all_declared(instance) for name in declared.sensitive}
    return Redactor(tuple(sorted(fields)))


def declared_instances() -> set[str]:
    """Return the names of the instances for which something is declared."""
    return {instance for instance, _ in _declared}


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
    redactor_of_declared.cache_clear()


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
    redactor_of_declared.cache_clear()


# Names that nobody has declared

HOW_TO_DECLARE = (
    "Declare it in the module jobs of an app, or add its module to AUTODISCOVER. If it was "
    "renamed, give the new one aliases= with the former name."
)
"""What helps where code is not imported that declares a job type."""

MOST_WARNINGS = 1_000
"""So many names are warned of in one process: names may come from outside."""

_warned: set[tuple[str, str, str]] = set()

_strict_in_tests = False


def be_strict_in_tests() -> None:
    """Refuse names that are not declared where the setting STRICT says nothing: in test suites."""
    global _strict_in_tests  # noqa: PLW0603 - of the process
    _strict_in_tests = True


def check_declared(instance: str, name: object, verb: str) -> None:
    """Warn, once for each name, of a job type that this process does not declare.

    With the setting STRICT raise `InvalidJobTypeError`.
    """
    if not isinstance(name, str) or get_declared(instance, name) is not None:
        return  # what is no name at all is refused by others
    strict = get_instance(instance).strict
    is_error = _strict_in_tests if strict is None else strict
    if not is_error and not _is_first(("job type", instance, name)):
        return  # before the nearest name is looked for, which takes long
    # Only what is stored as such a kind: names may come from outside, and modules are imported.
    if any(find_declared(instance, name, read(instance, name)) for read in _readers):
        return
    text = (
        f"{verb}: no code of this process declares job type {name!r}"
        f"{nearest_name(name, known_names(instance))}"
    )
    if is_error:
        raise InvalidJobTypeError(
            f"{text} Correct the name, declare the type, or set STRICT to False."
        )
    events.warning("undeclared_job_type", text, job_type=name, instance=instance)


def check_queue(instance: str, name: str, verb: str, stored: Callable[[], Iterable[str]]) -> None:
    """Warn, once for each name, of a queue that is new and that nothing declares.

    With the setting STRICT raise `InvalidJobError`; not where it says nothing in tests, which may
    make up queues. `stored` returns the names of the queues that there are.
    """
    known = declared_queues(instance)
    is_error = get_instance(instance).strict is True
    if name in known or not (is_error or _is_first(("queue", instance, name))):
        return
    text = (
        f"{verb}: queue {name!r} is new, and neither the setting HIPQ nor a job type declares it"
        f"{nearest_name(name, {*known, *stored()})}"
    )
    if is_error:
        raise InvalidJobError(f"{text} Correct the name, add it to QUEUES, or set STRICT to False.")
    events.warning(
        "undeclared_queue", f"{text} Does a worker serve it?", queue=name, instance=instance
    )


def declared_queues(instance: str) -> set[str]:
    """Return the names of the queues that need no job to exist."""
    of_types = {declared.queue for declared in get_all_declared(instance)}
    return {DEFAULT, *get_instance(instance).queues, *of_types}


def _is_first(about: tuple[str, str, str]) -> bool:
    """Return whether this was not warned of yet, and note it."""
    if about in _warned or len(_warned) >= MOST_WARNINGS:
        return False
    _warned.add(about)
    return True


def _conflict(name: str, other: Declaration, declared: Declaration) -> str:
    places = f"by {_path_of(other.handler)} and {_path_of(declared.handler)}"
    if other.name == declared.name == name:
        what = "is declared twice"
    elif other.name == name:
        what = f"is declared, and an alias of {declared.name!r}"
    elif declared.name == name:
        what = f"is declared, and an alias of {other.name!r}"
    else:
        what = "is declared as an alias twice"
    return f"job type {name!r} {what} in instance {other.instance!r}: {places}; rename one of them."


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
