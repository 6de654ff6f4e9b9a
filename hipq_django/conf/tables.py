"""What is wrong with `OWN_TABLE` of queues and `TABLE_NAMING_STRATEGY` of instances."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from django.core.checks import Error
from django.db import connections

from hipq_django.conf.options import INSTANCE
from hipq_django.exceptions import ConfigurationError
from hipq_django.sources.settings import imported

MAX_TABLES = 8
NAME = re.compile(r"[a-z0-9_]{1,50}")
STRATEGY = "TABLE_NAMING_STRATEGY"
HINT = (
    "It returns a name of lower-case letters, digits and underscores, at most 50 characters, "
    "different for each queue."
)


def own_table_queues(given: Mapping[str, Any]) -> list[str]:
    """Return the names of the queues of an instance, as it was given, that have OWN_TABLE."""
    return [name for name, options in given.get("QUEUES", {}).items() if options.get("OWN_TABLE")]


def wrong_tables(name: str, given: Mapping[str, Any], aliases: Sequence[str]) -> Iterator[Error]:
    """Yield E061 and E062 of an instance that is in the databases with these aliases."""
    queues, where = own_table_queues(given), f"HIPQ[{name!r}]"
    vendors = {alias: connections[alias].vendor for alias in aliases if queues}
    for alias, vendor in vendors.items():
        if vendor != "postgresql":
            own = f"queue {queues[0]!r} has OWN_TABLE, but DATABASES[{alias!r}] is {vendor}."
            yield Error(f"{where}: {own}", "Only PostgreSQL has tables of queues.", id="hipq.E061")
    if len(queues) > MAX_TABLES:
        text = f"{where} has {len(queues)} queues with OWN_TABLE."
        yield Error(text, f"At most {MAX_TABLES}: each makes every claim slower.", id="hipq.E062")


def wrong_names(name: str, given: Mapping[str, Any], taken: dict[str, object]) -> Iterator[Error]:
    """Yield E060 where the strategy of an instance gives no names, or one that is `taken`."""
    try:
        for queue in own_table_queues(given):
            table = table_name(name, given, queue)
            if taken.setdefault(table, (name, queue)) != (name, queue):
                raise _wrong_name(name, given, table, queue)
    except ConfigurationError as error:
        yield Error(str(error), HINT, id="hipq.E060")


def table_name(instance: str, given: Mapping[str, Any], queue: str) -> str:
    """Return the name of the table of a queue; raise `ConfigurationError` where it has none."""
    table = _strategy(instance, given)(instance, queue)
    if not isinstance(table, str) or not NAME.fullmatch(table):
        raise _wrong_name(instance, given, table, queue)
    return table


def _strategy(instance: str, given: Mapping[str, Any]) -> Callable[[str, str], object]:
    text = f"{_where(instance, given)} cannot be imported."
    try:
        found = imported(STRATEGY, _path(given))
    except ConfigurationError as error:
        raise ConfigurationError(text) from error
    if not callable(found):
        raise ConfigurationError(text)
    return found  # type: ignore[no-any-return]  # imported by its path


def _wrong_name(
    instance: str, given: Mapping[str, Any], table: object, queue: str
) -> ConfigurationError:
    return ConfigurationError(f"{_where(instance, given)} gave {table!r} for queue {queue!r}.")


def _where(instance: str, given: Mapping[str, Any]) -> str:
    return f"HIPQ[{instance!r}]['{STRATEGY}'] {_path(given)!r}"


def _path(given: Mapping[str, Any]) -> str:
    return given.get(STRATEGY, INSTANCE.defaults[STRATEGY])  # type: ignore[no-any-return]  # text
