"""The options of the setting HIPQ: of an instance, of a queue, and of a source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from django.conf import settings

from hipq_django.domain.options import (
    Number,
    Option,
    Options,
    Words,
    WrongKeyError,
    allowing,
    or_none,
    texts,
)
from hipq_django.domain.ordering import Order
from hipq_django.domain.sharding import MAX_SHARDS
from hipq_django.domain.validation import (
    ABOVE_ZERO,
    FACTOR_DECIMALS,
    MAX_FACTOR,
    MAX_SECONDS,
    checked_factor,
)
from hipq_django.exceptions import ConfigurationError, nearest_name
from hipq_django.sources.settings import SourceSettings


def _database(value: Any) -> str:
    if not isinstance(value, str) or value not in settings.DATABASES:
        near = nearest_name(str(value), settings.DATABASES)
        raise ConfigurationError(f"{value!r} is not in DATABASES{near}")
    return value


def _limit(value: Any) -> Decimal:
    """Return a throttle limit; everything below 1 is unlimited and stored as 0."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    finite = isinstance(value, Decimal) and value.is_finite()
    return checked_factor(0 if (plain or finite) and value < 1 else value)


def _retention(value: Any) -> tuple[float, float | None]:
    """Return how many days jobs are kept that did not succeed, and how many those that did.

    None means that both are kept as long.
    """
    given = value if isinstance(value, dict) else {"others": value}
    for key in given:
        if key not in ("succeeded", "others"):
            text = f"{key!r}: give a number of days, or 'succeeded' and 'others'."
            raise WrongKeyError(text)
    succeeded = given.get("succeeded")
    return (
        DAYS.check(given.get("others", DAYS.default)),
        None if succeeded is None else DAYS.check(succeeded),
    )


def _modules(value: Any) -> tuple[str, ...]:
    return _identifiers(texts(value))  # type: ignore[no-any-return]  # as it was given


def _shards(value: Any) -> tuple[str, ...]:
    aliases = texts(value)
    if not 1 <= len(aliases) <= MAX_SHARDS:
        raise ValueError(value)
    return aliases


def _is_dict_of_dicts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(inner, dict) for inner in value.values())


def _has_keywords(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(name, str) for name in value)


_SITE = re.compile(r"(https?://(\[[\da-fA-F:]+\]|[^\s/?#:\[]+)(:\d+)?(/[^\s?#]*)?)?")
"""An address that a path may follow, or nothing."""

_address = allowing(lambda value: isinstance(value, str) and bool(_SITE.fullmatch(value)))
_bool = allowing(lambda value: isinstance(value, bool))
_dicts, _keywords = allowing(_is_dict_of_dicts), allowing(_has_keywords)
_identifiers = allowing(lambda names: all(map(str.isidentifier, names)))
_path = allowing(lambda value: isinstance(value, str) and "." in value)
_seconds = Number(ABOVE_ZERO, MAX_SECONDS)

SHARD_KEY = "the dotted path of a function, or the name of a field of job_data"
SIZE = "a whole number of at least 1,000, or None for no bound"
ADDRESS = "the address of this site, without query and fragment, such as 'https://shop.example'"
DAYS = Option("RETENTION_DAYS", 14, Number(0, 36_500))
"""For how long jobs are kept: the number alone, without that of successes."""
RETENTION = f'{DAYS.allowed}, or a dict such as {{"succeeded": 1, "others": 90}}'
LIMIT = f"a number up to {MAX_FACTOR:,} with at most {FACTOR_DECIMALS} decimals; below 1: no limit"

INSTANCE = Options(
    "hipq.E003",
    "hipq.E005",
    (
        Option("DATABASE", "default", _database, "an alias of DATABASES"),
        Option(
            "SHARDS",
            None,
            or_none(_shards),
            f"a list of 1 to {MAX_SHARDS} aliases",
            wrong_id="hipq.E052",
        ),
        Option("SHARD_KEY", "", allowing(lambda value: isinstance(value, str)), SHARD_KEY),
        Option("ENGINE", "auto", Words(("auto", "orm")), wrong_id="hipq.E045"),
        Option("CALLBACK_BASE_URL", "", _address, ADDRESS),
        Option("CALLBACK_MAX_BYTES", 1_048_576, Number(1, MAX_SECONDS, whole=True)),
        Option("HEARTBEAT_SECONDS", 10, _seconds),
        Option("NOTIFY", True, _bool, "True or False"),
        Option("ANSWER_TTL_SECONDS", 86_400, _seconds),
        Option("ANSWER_RETENTION_DAYS", 14, Number(ABOVE_ZERO, 36_500)),
        Option("ARGUMENTS", "hipq_django.arguments.JsonArguments", _path, "a dotted path"),
        Option(
            "TABLE_NAMING_STRATEGY", "hipq_django.naming.instance_and_queue", _path, "a dotted path"
        ),
        Option("AUTODISCOVER", ("jobs",), _modules, "a list of names of modules: ['jobs']"),
        Option("STRICT", None, or_none(_bool), "True, False or None"),
        Option("MAX_DATA_BYTES", 1_000_000, or_none(Number(1_000, whole=True)), SIZE),
        Option("FLOW", {}, _keywords, "a dict of the options of flows"),
        Option("QUEUES", {}, _dicts, 'a dict such as {"bank": {"THROTTLE_LIMIT": 10}}'),
        Option("SOURCES", {}, _dicts, "a dict of dicts", is_secret=True),
    ),
)
QUEUE = Options(
    "hipq.E009",
    "hipq.E012",
    (
        Option("THROTTLE_LIMIT", 0, _limit, LIMIT),
        Option("ORDER", Order.TIME.value, Words(tuple(Order.values))),
        Option("AGEING_SECONDS", 60, Number(0, 86_400 * 400)),
        Option("GRANULARITY_SECONDS", 1, Number(0.001, 86_400)),
        Option("THROTTLERS", [], texts, 'a list of dotted paths: ["payments.limits.by_region"]'),
        Option(DAYS.name, DAYS.default, _retention, RETENTION),
        Option("OWN_TABLE", False, _bool, "True or False"),
    ),
)
SOURCE = Options(
    "hipq.E022",
    "hipq.E023",
    (
        Option("SOURCE", "", _path, "the dotted path of a class"),
        Option("MAP", "", _path, "the dotted path of a function"),
        Option("OPTIONS", {}, _keywords, "a dict with text as keys", is_secret=True),
        Option("BATCH_SIZE", 500, Number(1, 10_000, whole=True)),
    ),
)


def source_settings(name: str, given: Mapping[str, Any]) -> SourceSettings:
    """Return the settings of a source; raise `ValueError` for a wrong one."""
    return SourceSettings(name, **SOURCE.read(given))
