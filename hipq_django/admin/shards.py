"""The shard whose rows a page shows: the one that is chosen for a list, or that of the row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from django.contrib.admin.utils import unquote
from django.http import HttpRequest

from hipq_django.conf.instances import InstanceSettings, get_instances, on_shard
from hipq_django.domain.sharding import Shard
from hipq_django.domain.validation import id_from
from hipq_django.sharding.map import map_of

SHARD = "shard"
"""By what the address of a list names its shard."""


def instance_on(using: str) -> InstanceSettings | None:
    """Return the first instance that has a database among its shards; None if none has."""
    found = (config for config in get_instances() if config.is_sharded and using in config.shards)
    return next(found, None)


def chosen_shard(request: HttpRequest, config: InstanceSettings) -> Shard:
    """Return the shard that the address names, else the one chosen last; remember it."""
    shards, key = map_of(config).shards, f"hipq_shard_{config.name}"
    by_number = {str(shard.number): shard for shard in shards}
    kept = by_number.get(request.session.get(key, ""), shards[0])
    shard = by_number.get(request.GET.get(SHARD, ""), kept)
    if shard != kept:
        request.session[key] = str(shard.number)
    return shard


def shard_of_row(config: InstanceSettings, object_id: str | None) -> Shard:
    """Return the shard of a row; of a new one, and of an id that names none, the first."""
    known, pk = map_of(config), id_from(unquote(object_id or ""))
    return (pk and known.of_id(pk)) or known.shards[0]


@contextmanager
def working_on(alias: str) -> Iterator[None]:
    """Let the verbs of a block work on this shard, for all instances that it is a shard of."""
    with ExitStack() as opened:
        for config in get_instances():
            if config.is_sharded and alias in config.shards:
                opened.enter_context(on_shard(config.name, alias))
        yield
