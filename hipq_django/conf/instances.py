"""The values of the HIPQ setting, instance by instance; its options are in `options`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from decimal import Decimal
from types import MappingProxyType
from typing import Any

from django.conf import settings

from hipq_django.arguments import Arguments
from hipq_django.conf.options import INSTANCE, QUEUE, source_settings
from hipq_django.conf.rules import (
    DEFAULT,
    NOTHING,
    arguments_at,
    problems,
    raw_setting,
    throttler_at,
)
from hipq_django.domain.throttling import Throttler
from hipq_django.exceptions import ConfigurationError, nearest_name
from hipq_django.sources.settings import SourceSettings

LOST_AFTER_BEATS = 3


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """The values of one queue in the setting; an operator's later change in the admin wins."""

    throttle_limit: Decimal
    order: str
    ageing_seconds: float
    granularity_seconds: float
    retention_days: float
    """Of jobs that did not succeed."""
    retention_days_succeeded: float | None
    """Of those that did; None: the same."""
    throttlers: tuple[str, ...] = ()
    own_table: bool = False
    """Whether the rows of its jobs are in a table of their own, once `hipq_tables` has made it."""


@dataclass(frozen=True, slots=True)
class InstanceSettings:
    """One hipq instance: its database alias, its queues and its sources of messages.

    Of a sharded instance `database` is one of its `shards`: see `on` and `on_shard`.
    """

    name: str
    database: str
    shards: tuple[str, ...]
    """The aliases of the setting, by their numbers; `database` alone without SHARDS."""
    is_sharded: bool
    """Whether SHARDS is given."""
    shard_key: str
    """A dotted path, the name of a field of the data, or ''."""
    is_routed: bool
    """Whether SHARDS or SHARD_KEY is given: then each job is asked where it belongs."""
    engine: str
    callback_base_url: str
    callback_max_bytes: int
    heartbeat_seconds: float
    notify: bool
    answer_ttl_seconds: float
    answer_retention_days: float
    arguments: str
    table_naming_strategy: str
    """The dotted path of the function that names the tables of queues."""
    autodiscover: tuple[str, ...]
    strict: bool | None
    max_data_bytes: int | None
    flow: Mapping[str, Any]
    """What the app of flows reads."""
    queues: Mapping[str, QueueSettings] = field(default_factory=dict)
    sources: Mapping[str, SourceSettings] = field(default_factory=dict)
    own_tables: frozenset[str] = frozenset()
    """The names of the queues that have OWN_TABLE."""
    _on: dict[str, InstanceSettings] = field(default_factory=dict, repr=False, compare=False)

    @property
    def silence_seconds(self) -> float:
        """After how many seconds of silence a worker counts as lost."""
        return LOST_AFTER_BEATS * self.heartbeat_seconds

    def on(self, alias: str) -> InstanceSettings:
        """Return the settings of this instance on one of its databases."""
        if alias == self.database:
            return self
        if alias not in self._on:
            self._on[alias] = replace(self, database=alias)
        return self._on[alias]

    def queue(self, name: str) -> QueueSettings:
        """Return the settings of a queue; the defaults if the setting does not name it."""
        return self.queues.get(name) or _UNNAMED_QUEUE

    def source(self, name: str) -> SourceSettings:
        """Return the settings of a source; raise `ConfigurationError` if there is none."""
        found = self.sources.get(name)
        if found is None:
            known = nearest_name(name, self.sources) if self.sources else "."
            raise ConfigurationError(
                f"HIPQ[{self.name!r}]['SOURCES'] has no source {name!r}{known} Add it to the "
                "setting."
            )
        return found


def get_instance(name: str = DEFAULT) -> InstanceSettings:
    """Return the settings of an instance; of a sharded one, on the shard that is worked on.

    Raise `ConfigurationError` for an unknown instance and for the first wrong setting.
    """
    instances = _instances()
    found = instances.get(name) if isinstance(name, str) else None
    if found is None:
        near = nearest_name(str(name), instances)
        raise ConfigurationError(f"HIPQ has no instance {name!r}{near} Add it to the setting.")
    if not found.is_sharded:
        return found
    return found.on(_named.get().get(name) or _served.get(name, found.database))


_served: dict[str, str] = {}
"""The shard of an instance that this process works on, where no other is named."""

_named: ContextVar[Mapping[str, str]] = ContextVar("hipq_shards", default=MappingProxyType({}))
"""The shard of an instance that the code of an `on_shard` block works on."""


def serve(instance: str, alias: str) -> None:
    """Let all threads of this process work on one shard of an instance, but for `on_shard`."""
    _served[instance] = alias


@contextmanager
def on_shard(instance: str, alias: str) -> Iterator[None]:
    """Let `get_instance` return the settings of an instance on one of its shards, for a block."""
    before = _named.set({**_named.get(), instance: alias})
    try:
        yield
    finally:
        _named.reset(before)


def get_instances() -> list[InstanceSettings]:
    """Return all instances of the setting, 'default' always among them."""
    return list(_instances().values())


def valid_instances() -> list[InstanceSettings]:
    """Return the same for system checks; none where one of them finds the setting wrong."""
    return [] if any(problems()) else get_instances()


def is_replica(using: str) -> bool:
    """Return whether a database is that of no instance, but what a router reads from."""
    return all(using not in config.shards for config in _instances().values())


def get_arguments(instance: str) -> Arguments:
    """Return the converter of the arguments of an instance's tasks."""
    return arguments_at(get_instance(instance).arguments)


def autodiscovered() -> list[str]:
    """Return the names of the modules that are imported from every app, of all instances."""
    return sorted({name for config in get_instances() for name in config.autodiscover})


def longest_silence(using: str) -> float:
    """Return the longest such silence of all instances on this database."""
    return max((i.silence_seconds for i in get_instances() if using in i.shards), default=0.0)


def get_throttlers(instance: str, queue: str) -> list[Throttler]:
    """Return the throttlers of a queue; raise `ConfigurationError` if one cannot be imported."""
    return [throttler_at(path) for path in get_instance(instance).queue(queue).throttlers]


_read: tuple[object, dict[str, InstanceSettings]] = (None, {})
"""The setting that was read last, and its values; read again when tests replace the setting."""


def _instances() -> dict[str, InstanceSettings]:
    global _read  # noqa: PLW0603 - the cache of this module
    setting = getattr(settings, "HIPQ", NOTHING)
    if _read[0] is not setting:
        _read = (setting, _read_instances())
    return _read[1]


def _read_instances() -> dict[str, InstanceSettings]:
    for problem in problems():
        raise ConfigurationError(f"{problem.msg} {problem.hint}")
    setting = {DEFAULT: {}, **raw_setting()}
    return {name: _instance_settings(name, options) for name, options in setting.items()}


def _instance_settings(name: str, options: Mapping[str, Any]) -> InstanceSettings:
    values = INSTANCE.read(options)
    queues = {key: _queue_settings(given) for key, given in values["queues"].items()}
    sources = {key: source_settings(key, given) for key, given in values["sources"].items()}
    shards = values["shards"] or (values["database"],)
    is_sharded = values["shards"] is not None
    own = {
        "database": shards[0],
        "shards": shards,
        "is_sharded": is_sharded,
        "is_routed": is_sharded or bool(values["shard_key"]),
        "own_tables": frozenset(key for key, queue in queues.items() if queue.own_table),
    }
    return InstanceSettings(name, **{**values, **own, "queues": queues, "sources": sources})


def _queue_settings(options: Mapping[str, Any]) -> QueueSettings:
    values = QUEUE.read(options)
    others, succeeded = values.pop("retention_days")
    return QueueSettings(**values, retention_days=others, retention_days_succeeded=succeeded)


_UNNAMED_QUEUE = _queue_settings({})
