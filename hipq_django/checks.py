"""System checks, one for each rule of the HIPQ setting and of what it depends on."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from itertools import chain
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core import checks
from django.db import connections

from hipq_django.conf import instances, rules
from hipq_django.database.partitions import Partitions
from hipq_django.database.requirements import (
    SQLITE_OPTIONS,
    has_psycopg,
    local_times,
    places_of_models,
)
from hipq_django.domain.options import Option, Options
from hipq_django.domain.validation import checked_name
from hipq_django.exceptions import ConfigurationError, InvalidJobError, alike, nearest_name
from hipq_django.job_types.registry import get_all_declared
from hipq_django.job_types.task import Task
from hipq_django.maintenance.tables_of_queues import without_table
from hipq_django.tasks_backend import configured


def register() -> None:
    """Register all checks with Django."""
    everything = (
        check_setting, check_queues, check_databases, check_stored_times, check_tasks, check_flow,
        check_sensitive, check_sqlite, check_models,
    )  # fmt: skip
    for check in everything:
        checks.register(check)
    checks.register(check_tables, checks.Tags.database)


def check_setting(**_: Any) -> list[checks.CheckMessage]:
    """E001 to E014, E021 to E026, E035, E041, E050 to E062, as `conf.rules` finds them.

    The code that the setting names is imported only if everything else is right.
    """
    return [*rules.problems()] or [
        *rules.throttler_problems(),
        *rules.source_problems(),
        *rules.arguments_problems(),
        *rules.table_problems(),
        *chain.from_iterable(map(rules.sharding_problems, rules.raw_setting())),
    ]


def check_queues(**_: Any) -> Iterator[checks.CheckMessage]:
    """W005, where a queue of the setting, or that of a job type, is misspelt: it has no limit."""
    for instance in instances.valid_instances():
        types = {declared.queue: declared.name for declared in get_all_declared(instance.name)}
        unused = instance.queues.keys() - types.keys()
        for queue in sorted(types.keys() - instance.queues.keys()):
            if near := alike(queue, sorted(unused)):
                yield checks.Warning(
                    f"HIPQ[{instance.name!r}]['QUEUES'] has {near!r}, which no job type uses, but "
                    f"not {queue!r}, which job type {types[queue]!r} uses, with the default of "
                    "each option.",
                    hint="Correct one of the names, or choose names that look less alike.",
                    id="hipq.W005",
                )


def check_sensitive(**_: Any) -> Iterator[checks.CheckMessage]:
    """W008, where a sensitive field of a task is a misspelt argument: that is shown as it is.

    Any other name may be that of a key within an argument.
    """
    for instance in instances.valid_instances():
        for declared in get_all_declared(instance.name):
            if isinstance(declared, Task):
                yield from _misspelt_fields(declared)


def _misspelt_fields(task: Task[..., Any]) -> Iterator[checks.CheckMessage]:
    left = {name.casefold(): name for name in task.arguments if name not in task.sensitive}
    for field in task.sensitive:
        near = alike(field.casefold(), left)
        if near and near != field.casefold() and field not in task.arguments:
            yield checks.Warning(
                f"task {task.name!r} has the sensitive field {field!r}, which is none of its "
                f"arguments, but no {left[near]!r}, which is one.",
                hint="Correct the name, or choose names that look less alike.",
                id="hipq.W008",
            )


def check_flow(**_: Any) -> Iterator[checks.CheckMessage]:
    """E037, for each instance."""
    if apps.is_installed("hipq_django.flow"):
        return
    for instance in instances.valid_instances():
        if instance.flow:
            yield checks.Error(
                f"HIPQ[{instance.name!r}]['FLOW'] is given, and the app of flows is not installed.",
                hint="Add 'hipq_django.flow' to INSTALLED_APPS, or remove FLOW.",
                id="hipq.E037",
            )


def check_databases(**_: Any) -> Iterator[checks.CheckMessage]:
    """E015, E027, for each PostgreSQL of an instance."""
    for alias, options in _databases("postgresql"):
        yield from _check_postgresql(alias, options)


def check_stored_times(**_: Any) -> Iterator[checks.CheckMessage]:
    """E039, for each SQLite of an instance."""
    for alias, _options in _databases("sqlite"):
        if problem := local_times(alias):
            hint = "Remove 'TIME_ZONE', or give hipq an alias of its own without it."
            yield checks.Error(problem, hint=hint, id="hipq.E039")


def check_sqlite(**_: Any) -> Iterator[checks.CheckMessage]:
    """W001, for each SQLite of an instance."""
    for alias, given in _databases("sqlite"):
        lacking = {n: v for n, v in SQLITE_OPTIONS.items() if given.get(n) in (None, "DEFERRED")}
        if lacking:
            lines = "".join(f"\n    {json.dumps({n: v})[1:-1]}," for n, v in lacking.items())
            yield checks.Warning(
                f"DATABASES[{alias!r}] is SQLite without OPTIONS that keep several processes from "
                f"'database is locked':{lines}",
                hint="Write these lines into its OPTIONS.",
                id="hipq.W001",
            )


def check_models(**_: Any) -> Iterator[checks.CheckMessage]:
    """W003, for each instance whose database is none that the project's models are written to."""
    for instance in instances.valid_instances():
        if places := places_of_models(instance.database):
            yield checks.Warning(
                f"the jobs of HIPQ[{instance.name!r}] are in database {instance.database!r}, but "
                f"the project's models are written to {', '.join(map(repr, places))}: no "
                "transaction holds both.",
                hint="Enqueue after the commit: transaction.on_commit(lambda: task.enqueue(…)).",
                id="hipq.W003",
            )


def check_tables(databases: Collection[str] | None = None, **_: Any) -> Iterator[checks.Warning]:
    """W063, for each queue with OWN_TABLE in the databases that are checked."""
    for instance in instances.valid_instances():
        for alias in [one for one in instance.shards if one in (databases or ())]:
            is_migrated = instance.own_tables and Partitions(alias).is_migrated
            for queue in without_table(instance.on(alias)) if is_migrated else ():
                yield checks.Warning(
                    f"queue {queue!r} has OWN_TABLE, but no table yet.",
                    hint="Run manage.py hipq_tables.",
                    id="hipq.W063",
                )


def _databases(vendor: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the alias and options of each database of an instance."""
    found = instances.valid_instances()
    for alias in sorted({alias for instance in found for alias in instance.shards}):
        if connections[alias].vendor == vendor:
            yield alias, settings.DATABASES[alias].get("OPTIONS", {})


def _known_instance(name: Any) -> Any:
    known = [instance.name for instance in instances.valid_instances()]
    if known and name not in known:
        near = nearest_name(str(name), known)
        raise ConfigurationError(f"the setting HIPQ has no instance {name!r}{near}")
    return name


_OF_TASKS = Options(
    "hipq.E030",
    "hipq.E030",
    (Option(configured.INSTANCE, rules.DEFAULT, _known_instance, "the name of an instance"),),
)


def check_tasks(**_: Any) -> Iterator[checks.CheckMessage]:
    """E030 and E031 of the setting TASKS, where it names the backend of this package."""
    for alias, entry in configured.entries():
        where, options = f"TASKS[{alias!r}]", entry.get("OPTIONS") or {}
        if isinstance(options, dict):
            yield from rules.wrong_options(f"{where}['OPTIONS']", _OF_TASKS, options)
        else:
            text = f"{where}['OPTIONS']: {options!r:.100} is not a dictionary."
            yield checks.Error(text, hint="Correct or remove it.", id="hipq.E030")
        yield from _check_queues(f"{where}['QUEUES']", entry.get("QUEUES") or ())


def _check_queues(where: str, queues: Any) -> Iterator[checks.CheckMessage]:
    hint = "Give a list of names that queues can have, and use these in the tasks."
    if isinstance(queues, str):  # Django would take each letter for a queue
        text = f"{where}: {queues!r:.100} is text, not a list."
        yield checks.Error(text, hint=hint, id="hipq.E031")
        return
    for queue in queues:
        try:
            checked_name("queue", queue)
        except InvalidJobError as error:
            yield checks.Error(f"{where}: {error}", hint=hint, id="hipq.E031")


def _check_postgresql(alias: str, options: dict[str, Any]) -> Iterator[checks.CheckMessage]:
    if not _is_read_committed(options):  # limits would not be exact
        yield checks.Error(
            f"DATABASES[{alias!r}]['OPTIONS']['isolation_level'] is set, but exact limits need "
            "PostgreSQL's default, read committed.",
            hint="Remove 'isolation_level', or give hipq an alias of its own without it.",
            id="hipq.E015",
        )
    if not has_psycopg(alias):  # psycopg2 can neither copy rows in nor wait for messages
        yield checks.Error(
            f"DATABASES[{alias!r}] is reached through psycopg2; hipq_django needs psycopg 3.",
            hint="Install psycopg 3: pip install 'psycopg[binary]'. Django prefers it.",
            id="hipq.E027",
        )


def _is_read_committed(options: dict[str, Any]) -> bool:
    level = options.get("isolation_level")
    return level is None or getattr(level, "name", str(level)) == "READ_COMMITTED"
