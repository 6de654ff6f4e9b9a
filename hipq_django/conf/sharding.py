"""What is wrong with `SHARDS` and `SHARD_KEY` of an instance, and with throttlers beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning as CheckWarning
from django.db import connections

from hipq_django.domain.throttling import KeyLimit, RateLimit, Throttler
from hipq_django.exceptions import ConfigurationError
from hipq_django.sources.settings import imported

Instances = Mapping[str, Mapping[str, Any]]


def wrong_shards(instances: Instances) -> Iterator[Error]:
    """Yield E050, E051, E053, E054 and E058; E052 is that of a wrong value."""
    sharded = {name: given for name, given in instances.items() if given.get("SHARDS") is not None}
    for name, given in sharded.items():
        where = f"HIPQ[{name!r}]"
        if "DATABASE" in given:
            text = f"{where} has DATABASE and SHARDS."
            yield Error(text, "Give one of them.", id="hipq.E050")
        if given.get("FLOW"):
            yield flow_beside_shards(name)
        yield from _wrong_aliases(f"{where}['SHARDS']", given["SHARDS"])
    yield from _different_numbers(sharded)


def flow_beside_shards(name: str) -> Error:
    """Return E054."""
    text = f"HIPQ[{name!r}] has SHARDS and FLOW."
    return Error(text, "Give flow an instance of its own.", id="hipq.E054")


def _wrong_aliases(where: str, shards: Sequence[str]) -> Iterator[Error]:
    for number, alias in enumerate(shards):
        hint = "Name each alias once."
        if alias in shards[:number]:
            yield Error(f"{where} names {alias!r} twice.", hint, id="hipq.E051")
        elif alias not in settings.DATABASES:
            text = f"{where} names {alias!r}, which DATABASES does not have."
            yield Error(text, hint, id="hipq.E051")
        elif (vendor := connections[alias].vendor) != "postgresql":
            text = f"{where} has {alias!r}, which is {vendor}."
            yield Error(text, "A shard is PostgreSQL.", id="hipq.E053")


def _different_numbers(sharded: Instances) -> Iterator[Error]:
    """Yield E058: all tables of a database have the ids of one shard number."""
    first: dict[str, tuple[str, int]] = {}
    for name, given in sharded.items():
        for number, alias in enumerate(given["SHARDS"]):
            other, known = first.setdefault(alias, (name, number))
            if known != number and other != name:
                text = f"HIPQ[{other!r}] and HIPQ[{name!r}] give {alias!r} different numbers."
                yield Error(text, "Its ids can name one number only.", id="hipq.E058")


# What depends on code of the project, which is imported late


ShardKeyOf = Callable[[Any], str | None]


def shard_key_problems(name: str, given: Mapping[str, Any]) -> Iterator[Error]:
    """Yield E057, where the function of a path cannot be had."""
    path = given.get("SHARD_KEY", "")
    if "." in path:
        try:
            shard_key_at(name, path)
        except ConfigurationError as error:
            yield Error(str(error), "Correct the path.", id="hipq.E057")


def shard_key_at(instance: str, path: str) -> ShardKeyOf:
    """Return the function of SHARD_KEY at a dotted path; raise `ConfigurationError`."""
    text = f"HIPQ[{instance!r}]['SHARD_KEY'] {path!r} cannot be imported."
    try:
        found = imported("SHARD_KEY", path)
    except ConfigurationError as error:
        raise ConfigurationError(text) from error
    if not callable(found):
        raise ConfigurationError(text)
    return found  # type: ignore[no-any-return]  # imported by its path


def throttler_beside_shards(where: str, throttler: Throttler, count: int) -> Iterator[CheckMessage]:
    """Yield E055 and W056, where each of `count` shards counts for itself."""
    if isinstance(throttler, RateLimit) and throttler.count < count:
        yield Error(
            f"{where}: RateLimit({throttler.count}, per={throttler.per}) is less than one for "
            f"each of {count} shards.",
            "Give it a higher count over a longer time.",
            id="hipq.E055",
        )
    if isinstance(throttler, KeyLimit) and count > 1:
        key = throttler.key
        yield CheckWarning(
            f"{where}: KeyLimit({key!r}) counts in each shard.",
            f"It is exact if the shard key is made of {key!r} alone; silence it then.",
            id="hipq.W056",
        )
