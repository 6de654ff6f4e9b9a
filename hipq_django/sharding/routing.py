"""Where jobs, keys and ids lead to: the one door behind which there may be several shards."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import wraps
from itertools import cycle
from numbers import Number
from typing import Any, ParamSpec, TypeVar

from django.db import connections
from django.utils.functional import cached_property

from hipq_django import events
from hipq_django.conf.instances import InstanceSettings, get_instance, on_shard
from hipq_django.conf.rules import DEFAULT
from hipq_django.conf.sharding import shard_key_at
from hipq_django.domain.drafts import NewJob
from hipq_django.domain.sharding import Shard, checked_shard_key
from hipq_django.domain.states import NONE
from hipq_django.domain.validation import checked_key, is_id
from hipq_django.exceptions import InvalidJobError, ShardError
from hipq_django.job_types.current import current_job
from hipq_django.sharding.map import map_of

P = ParamSpec("P")
R = TypeVar("R")

SAME_KEY = "jobs that wait for each other need the same shard_key."


def of_id(instance: str, row_id: object) -> str:
    """Return the database of the row with an id; for an id of no shard, one that lacks it."""
    config = get_instance(instance)
    if not (config.is_sharded and is_id(row_id)):
        return config.database
    shard = map_of(config).of_id(row_id)
    return shard.alias if shard else config.shards[0]


def of_key(
    config: InstanceSettings, job_type: str, job_key: str, shard_key: str | None, verb: str
) -> list[str]:
    """Return the databases where the job with a key may be: its shard, and its former one.

    Raise `InvalidJobError`, which begins with the verb, if SHARD_KEY needs a `shard_key`.
    """
    if shard_key is not None:
        job_key = checked_shard_key(f"{verb} {job_type!r}", shard_key)
    elif config.shard_key:
        raise InvalidJobError(
            f"{verb} {job_type!r}: SHARD_KEY says where its jobs are; give shard_key, or use the "
            "callback's token."
        )
    if not config.is_sharded:
        return [config.database]
    return [shard.alias for shard in map_of(config).all_of_key(job_key)]


def of_requeued(instance: str, using: str, key: str) -> str:
    """Return where a new job with the key of a final one goes; without one, it stays `using`."""
    config = get_instance(instance)
    return map_of(config).of_key(key).alias if config.is_sharded and key else using


# New jobs


def with_shard_key(new: NewJob, config: InstanceSettings, shared: str | None = None) -> NewJob:
    """Return a job with its shard key: its own, that of its batch or chain, or by SHARD_KEY."""
    key = new.shard_key
    if key is None:
        key = shared
    if key is None and config.shard_key:
        key = _by_setting(new, config)
    return new if key is new.shard_key else replace(new, shard_key=key)


def _by_setting(new: NewJob, config: InstanceSettings) -> Any:
    """Return what SHARD_KEY says of a job; a number is taken as its text."""
    key = None
    if "." in config.shard_key:
        key = shard_key_at(config.name, config.shard_key)(new)
    elif isinstance(new.job_data, Mapping):
        key = new.job_data.get(config.shard_key)
    return str(key) if isinstance(key, Number) and not isinstance(key, bool) else key


class Routes:
    """The shards of the new jobs of one call, which have their shard keys already."""

    def __init__(self, config: InstanceSettings, digest: Callable[[NewJob], str | None]) -> None:
        """`digest` returns the key by which a unique job is compared, None for another one."""
        self._instance = config.name
        self._map = map_of(config)
        self._digest = digest
        self._known: dict[str, list[Shard]] = {}
        """The shards of keys: many jobs of a call may have the same."""

    def place(self, new: NewJob, batch: Any = None) -> str:
        """Return the database of a job, which may belong to a batch; raise `ShardError`."""
        return self._noted(self._own(new, batch) or self._anywhere)

    def place_together(
        self, jobs: Iterable[NewJob], verb: str, way_out: str, batch: Any = None
    ) -> str:
        """Return the database of all of the jobs; raise `ShardError` if they have several."""
        found = {shard for new in jobs if (shard := self._own(new, batch))}
        if len(found) > 1:
            *others, last = [shard.alias for shard in self._map.shards if shard in found]
            raise ShardError(
                f"{verb}: the jobs are in shards {', '.join(others)} and {last}; {way_out}"
            )
        return self._noted(found.pop() if found else self._anywhere)

    def place_apart(self, jobs: Iterable[NewJob]) -> dict[str, list[int]]:
        """Return the places of the jobs by their databases; those without keys go to all evenly."""
        shards = self._map.shards
        anywhere = cycle(random.sample(shards, len(shards)))
        parts: dict[Shard, list[int]] = {shard: [] for shard in shards}
        for place, new in enumerate(jobs):
            parts[self._own(new) or next(anywhere)].append(place)
        return {self._noted(shard): places for shard, places in parts.items() if places}

    def place_batch(self, shard_key: str | None) -> str:
        """Return the database of a new batch, whose shard key was checked."""
        return self._noted(self._anywhere if shard_key is None else self._map.of_key(shard_key))

    def former(self, jobs: Iterable[NewJob]) -> dict[str, list[int]]:
        """Return the places of jobs whose keys have moved, by the databases where they were."""
        parts: dict[str, list[int]] = {}
        if self._map.count_before == len(self._map.shards):
            return parts
        for place, new in enumerate(jobs):
            for shard in self._of_key(new)[1:]:
                parts.setdefault(shard.alias, []).append(place)
        return parts

    def _own(self, new: NewJob, batch_of: Any = None) -> Shard | None:
        """Return the shard that the values of a job name, if they do; raise `ShardError`.

        It may also be in the former shard of its key, beside what it belongs to.
        """
        by_key, after = self._of_key(new), self._of_followed(new)
        batch = self._of_batch(batch_of or new.batch)
        if batch and by_key and batch not in by_key:
            raise ShardError(
                f"enqueue {new.job_type!r}: its shard is {by_key[0].alias}, that of its batch "
                f"{batch.alias}; give the batch its shard_key."
            )
        may_be = [batch] if batch else by_key
        for pk, shard in after.items():
            if may_be and shard not in may_be:
                raise ShardError(
                    f"enqueue {new.job_type!r}: its shard is {may_be[0].alias}, that of job {pk} "
                    f"{shard.alias}; {SAME_KEY}"
                )
        return next(iter([*after.values(), *may_be]), None)

    def _of_key(self, new: NewJob) -> list[Shard]:
        """Return the shard that the key of a job leads to, and its former one if it has moved."""
        if new.shard_key is not None:
            key: str | None = checked_shard_key(f"enqueue {new.job_type!r}", new.shard_key)
        elif (key := checked_key(new.job_key)) == NONE:
            with on_shard(self._instance, self._anywhere.alias):
                key = self._digest(new)
        if key is None:
            return []
        if key not in self._known:
            self._known[key] = self._map.all_of_key(key)
        return self._known[key]

    def _of_batch(self, batch: Any) -> Shard | None:
        pk = getattr(batch, "pk", batch)
        return self._map.of_id(pk) if is_id(pk) else None

    def _of_followed(self, new: NewJob) -> dict[int, Shard]:
        """Return the shards of the jobs that a job follows, by their ids: all are the same."""
        if new.after is None:
            return {}
        after: Any = new.after if isinstance(new.after, Collection) else ()
        ids = [getattr(job, "pk", job) for job in after]
        found = {pk: shard for pk in ids if is_id(pk) and (shard := self._map.of_id(pk))}
        for pk, shard in found.items():
            first, its_shard = next(iter(found.items()))
            if shard != its_shard:
                raise ShardError(
                    f"job {first} is in shard {its_shard.alias}, job {pk} in {shard.alias}; "
                    f"{SAME_KEY}"
                )
        return found

    @cached_property
    def _anywhere(self) -> Shard:
        """The shard of jobs that name none: of the transaction, of the job that calls, or any."""
        shards = self._map.shards
        opened = [shard for shard in shards if connections[shard.alias].in_atomic_block]
        if opened:  # the innermost counts: a test may have begun one on each
            return max(opened, key=lambda shard: len(connections[shard.alias].savepoint_ids))
        mine = current_job()
        return (mine and self._map.of_alias(mine.using)) or random.choice(shards)  # noqa: S311 - no secret

    def _noted(self, shard: Shard) -> str:
        """Warn, once in a process, where jobs are committed beside an open transaction."""
        if _warned or connections[shard.alias].in_atomic_block:
            return shard.alias
        opened = [c.alias for c in connections.all(initialized_only=True) if c.in_atomic_block]
        if opened:
            _warned.append(shard.alias)
            events.warning(
                "enqueue_beside_transaction",
                f"a job is committed in {shard.alias}, whatever becomes of the transaction that is "
                f"open in {opened[0]}",
                instance=self._instance,
            )
        return shard.alias


_warned: list[str] = []


# Schedules


def in_first_shard(verb: Callable[P, R]) -> Callable[P, R]:
    """Let a verb about schedules act in the first shard, where all of an instance are."""

    @wraps(verb)
    def call(*args: P.args, **options: P.kwargs) -> R:
        config = get_instance(options.get("instance", DEFAULT))  # type: ignore[arg-type]  # a name
        if not config.is_sharded:
            return verb(*args, **options)
        with on_shard(config.name, config.shards[0]):
            return verb(*args, **options)

    return call
