"""The map: which shards an instance has, as their databases say.

The setting says where the shards are; the rows of `hipq_shard` say how many of them are in use.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from asgiref.sync import sync_to_async
from django.core.checks import ERROR
from django.db import Error, connections

from hipq_django.conf.instances import InstanceSettings, get_instance
from hipq_django.conf.rules import DEFAULT, sharding_problems
from hipq_django.database.answering import MapRow, answering, read_map
from hipq_django.database.clock import steady
from hipq_django.domain.sharding import (
    Shard,
    checked_shard_key,
    number_of_id,
    number_of_key,
)
from hipq_django.exceptions import ConfigurationError, ShardMapError

KEPT_SECONDS = 5.0
"""For how long a process goes by the map that it has read."""


@dataclass(frozen=True, slots=True)
class Shards:
    """The shards of an instance that are in use, by number."""

    shards: tuple[Shard, ...]
    count_before: int
    """How many there were before the last were added; less than now while jobs move out."""
    first_id: int
    """Ids above it name their shard; up to it they are from before there were shards."""
    is_stored: bool
    """Whether a database has it; without it there is shard 0 alone."""

    def of_key(self, key: str) -> Shard:
        """Return the shard of a shard key."""
        return self.shards[number_of_key(key, len(self.shards))]

    def all_of_key(self, key: str) -> list[Shard]:
        """Return where jobs with a key may be: its shard, and its former one if it has moved."""
        own = self.of_key(key)
        if self.count_before == len(self.shards):
            return [own]
        former = self.shards[number_of_key(key, self.count_before)]
        return [own] if former == own else [own, former]

    def former_of_key(self, key: str) -> Shard | None:
        """Return where jobs with a key may still be that has moved; None if there are none."""
        return next(iter(self.all_of_key(key)[1:]), None)

    def of_id(self, row_id: int) -> Shard | None:
        """Return the shard of a row by its id; None if it names no shard."""
        if not self.is_stored:
            return self.shards[0]
        number = number_of_id(row_id, self.first_id)
        return self.shards[number] if number < len(self.shards) else None

    def of_alias(self, alias: str) -> Shard | None:
        """Return the shard of a database; None if it is none, or is not in use yet."""
        return next((shard for shard in self.shards if shard.alias == alias), None)


def map_of(config: InstanceSettings) -> Shards:
    """Return the map of an instance, as it was at most five seconds ago.

    Without SHARDS, nothing is asked. Raise `ShardMapError` if SHARDS does not fit what the
    databases say, and Django's `OperationalError` if none of them answers.
    """
    if not config.is_sharded:
        return Shards((Shard(0, config.database),), 1, 0, is_stored=False)
    key = (config.name, config.shards)
    known = _known.get(key)
    if known is None or steady() - known.at > KEPT_SECONDS:
        known = _renewed(key, config, known)
    return known.map


@dataclass(frozen=True, slots=True)
class _Known:
    map: Shards
    at: float


_known: dict[tuple[str, tuple[str, ...]], _Known] = {}
_reading = threading.Lock()


def _renewed(
    key: tuple[str, tuple[str, ...]], config: InstanceSettings, known: _Known | None
) -> _Known:
    """Read the map again; while another thread does, a known one serves the others."""
    if not _reading.acquire(blocking=known is None):
        assert known is not None  # noqa: S101 - without one it has waited
        return known
    try:
        if _known.get(key) is known:  # else another thread has just read it
            moment = steady()
            _known[key] = _Known(_read(config), moment)
        return _known[key]
    finally:
        _reading.release()


def forget() -> None:
    """Read every map again when it is asked for the next time."""
    _known.clear()


def _read(config: InstanceSettings) -> Shards:
    """Go by the first shard that answers and has a row: one that was lost has none."""
    _check_code(config)
    failed: list[Error] = []
    for number, alias in enumerate(config.shards):
        try:
            with answering(alias) as connection:
                row = read_map(connection, config.name)
        except Error as error:
            failed.append(error)
            continue
        if row is not None:
            return made_of(config, number, row)
    if len(failed) == len(config.shards):
        raise failed[0]
    return Shards((Shard(0, config.shards[0]),), 1, 0, is_stored=False)


def _check_code(config: InstanceSettings) -> None:
    """Raise `ConfigurationError` if code that the setting names does not fit shards."""
    for problem in sharding_problems(config.name):
        if problem.level >= ERROR:
            raise ConfigurationError(f"{problem.msg} {problem.hint}")


def made_of(config: InstanceSettings, number: int, row: MapRow) -> Shards:
    """Return the map by the row of the database that SHARDS has as `number`.

    Raise `ShardMapError` if SHARDS does not fit.
    """
    name, shards = config.name, config.shards
    if row.number != number:
        raise ShardMapError(
            f"database {shards[number]!r} is shard {row.number} of instance {name!r}, but SHARDS "
            f"has it as number {number}. Deploy the setting that the shards were made with."
        )
    if row.count > len(shards):
        raise ShardMapError(
            f"instance {name!r} has {row.count} shards, but SHARDS names {len(shards)}: "
            f"{', '.join(shards)}. Deploy the setting with all of them."
        )
    used = tuple(Shard(number, alias) for number, alias in enumerate(shards[: row.count]))
    return Shards(used, row.count_before, row.first_id, is_stored=True)


def check_place(config: InstanceSettings) -> None:
    """Raise `ShardMapError` unless workers may serve this database of an instance.

    For a process that starts: it asks the database itself. Raise `ConfigurationError` if code that
    the setting names does not fit shards.
    """
    _check_code(config)
    using, name = config.database, config.name
    row = read_map(connections[using], name)
    if not config.is_sharded:
        if row is not None and row.count > 1:
            raise ShardMapError(
                f"database {using!r} is shard {row.number} of {row.count} of instance {name!r}, "
                "but the setting has no SHARDS."
            )
        return
    if row is not None:
        made_of(config, config.shards.index(using), row)
    elif map_of(config).is_stored or using != config.shards[0]:
        raise ShardMapError(
            f"database {using!r} is no shard of instance {name!r} yet: run manage.py hipq_shards "
            "add."
        )


# What projects ask


def shards(instance: str = DEFAULT) -> list[Shard]:
    """Return the shards of an instance that are in use, by number.

    An instance without SHARDS has one, its DATABASE. Raise `ShardMapError` if SHARDS does not fit
    what the databases say.
    """
    return list(map_of(get_instance(instance)).shards)


def shard_of(shard_key: str, instance: str = DEFAULT) -> Shard:
    """Return the shard of a shard key, which has 1 to 255 characters.

    Raise `InvalidJobError` for another key, `ShardMapError` if SHARDS does not fit what the
    databases say.
    """
    key = checked_shard_key("shard_of", shard_key)
    return map_of(get_instance(instance)).of_key(key)


ashards = sync_to_async(shards)
ashard_of = sync_to_async(shard_of)
