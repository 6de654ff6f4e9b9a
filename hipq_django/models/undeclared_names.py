"""Names of job types and queues that nothing declares: a warning, or with STRICT a refusal."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hipq_django import events
from hipq_django.conf.instances import get_instance
from hipq_django.exceptions import InvalidJobError, InvalidJobTypeError, nearest_name
from hipq_django.job_types.registry import (
    declared_queues,
    find_declared,
    get_declared,
    known_names,
)
from hipq_django.models import JobType

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
    if find_declared(instance, name, _stored_kind(instance, name)):
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


def _stored_kind(instance: str, name: str) -> str:
    """Return of which kind a job type is by its row; nothing if it has none."""
    rows = JobType.objects.using(get_instance(instance).database).order_by()
    return rows.filter(instance=instance, name=name).values_list("kind", flat=True).first() or ""


def _is_first(about: tuple[str, str, str]) -> bool:
    """Return whether this was not warned of yet, and note it."""
    if about in _warned or len(_warned) >= MOST_WARNINGS:
        return False
    _warned.add(about)
    return True
