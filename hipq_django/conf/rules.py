"""The HIPQ setting: its keys, defaults and rules.

`HIPQ = {instance: {"DATABASE": …, "QUEUES": {queue: {…}}}}`; it works with no setting at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from functools import cache, partial
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from django.conf import settings
from django.core.checks import Error
from django.db import connections

from hipq_django.arguments import Arguments
from hipq_django.domain.ordering import Order
from hipq_django.domain.throttling import Throttler
from hipq_django.domain.validation import (
    ABOVE_ZERO,
    FACTOR_DECIMALS,
    MAX_FACTOR,
    MAX_SECONDS,
    checked_factor,
    checked_name,
    checked_number,
    number_in,
)
from hipq_django.exceptions import ConfigurationError, InvalidJobError, nearest_name
from hipq_django.sources.settings import (
    SOURCE_DEFAULTS,
    check_code,
    imported,
    source_settings,
    wrong_values,
)

DEFAULT = "default"
VENDORS = ("postgresql", "sqlite", "unknown")
"""The kinds of databases that it runs on; of the last Django says that it is not set up."""

INSTANCE_DEFAULTS: dict[str, Any] = {
    "DATABASE": "default",
    "CALLBACK_BASE_URL": "",
    "CALLBACK_MAX_BYTES": 1_048_576,
    "HEARTBEAT_SECONDS": 10,
    "NOTIFY": True,
    "ANSWER_TTL_SECONDS": 86_400,
    "ANSWER_RETENTION_DAYS": 14,
    "ARGUMENTS": "hipq_django.arguments.JsonArguments",
    "AUTODISCOVER": ("jobs",),
    "STRICT": None,
    "MAX_DATA_BYTES": 1_000_000,
    "FLOW": {},
    "QUEUES": {},
    "SOURCES": {},
}
QUEUE_DEFAULTS: dict[str, Any] = {
    "THROTTLE_LIMIT": 0,
    "ORDER": Order.TIME.value,
    "AGEING_SECONDS": 60,
    "GRANULARITY_SECONDS": 1,
    "THROTTLERS": [],
    "RETENTION_DAYS": 14,
}
QUEUE_RANGES: dict[str, tuple[float, float]] = {
    "ageing_seconds": (0, 86_400 * 400),
    "granularity_seconds": (0.001, 86_400),
    "retention_days": (0, 36_500),
}
"""The lowest and the highest value of a queue's numbers, in the setting and in the admin."""


def checked_limit(limit: Any) -> Decimal:
    """Return a throttle limit; everything below 1 is unlimited and stored as 0."""
    plain = isinstance(limit, int | float) and not isinstance(limit, bool)
    finite = isinstance(limit, Decimal) and limit.is_finite()
    unlimited = (plain or finite) and limit < 1
    try:
        return checked_factor(0 if unlimited else limit)
    except InvalidJobError as error:
        raise InvalidJobError(
            f"throttle_limit {limit!r}: give a number up to {MAX_FACTOR:,} with at most "
            f"{FACTOR_DECIMALS} decimals; below 1 means unlimited."
        ) from error


def checked_queue_number(name: str, value: Any) -> float:
    """Return a queue's number; raise `InvalidJobError` unless it is in its range."""
    return checked_number(name, value, *QUEUE_RANGES[name])


def throttler_at(path: str) -> Throttler:
    """Return a throttler by its dotted path; raise `ConfigurationError` if it is not one."""
    throttler = imported("throttler", path)
    if not callable(throttler) or isinstance(throttler, type):
        raise ConfigurationError(
            f"throttler {path!r} is {throttler!r}; name a function or an instance such as "
            'limits.by_tenant = hipq_django.KeyLimit("tenant", 5).'
        )
    return throttler  # type: ignore[no-any-return]  # imported by its path


@cache
def arguments_at(path: str) -> Arguments:
    """Return the converter of arguments at a dotted path.

    Raise `ConfigurationError` where there is none.
    """
    kind = imported("converter", path)
    try:
        converter = kind()
    except (TypeError, ImportError) as error:
        raise ConfigurationError(f"converter {path!r} cannot be made: {error}") from error
    if callable(getattr(converter, "dump", None)) and callable(getattr(converter, "load", None)):
        return converter  # type: ignore[no-any-return]  # by what it can do
    raise ConfigurationError(
        f"converter {path!r} is {converter!r:.100}; name a class with the methods dump and load, "
        "as hipq_django.arguments.Arguments describes them."
    )


NOTHING: dict[str, dict[str, Any]] = {}


def raw_setting() -> dict[str, dict[str, Any]]:
    """Return the setting as it was given."""
    return getattr(settings, "HIPQ", NOTHING)


def problems() -> Iterator[Error]:
    """Yield the errors of the setting that the first check with any finds."""
    for check_id, rules in groupby(RULES, attrgetter("check_id")):
        wrong = [Error(text, r.hint, id=check_id) for r in rules for text in r.find(*r.about)]
        yield from wrong
        if wrong:
            return


def throttler_problems() -> Iterator[Error]:
    """Yield the throttlers that cannot be imported; not a rule, because it imports user code."""
    for where, values in _queues():
        for path in values.get("THROTTLERS", []):
            try:
                throttler_at(path)
            except ConfigurationError as error:
                yield Error(f"{where}: {error}", "Correct the path.", id="hipq.E014")


def arguments_problems() -> Iterator[Error]:
    """Yield the converters that cannot be used; not a rule, because it imports user code."""
    for where, options in _instances():
        try:
            arguments_at(options.get("ARGUMENTS", INSTANCE_DEFAULTS["ARGUMENTS"]))
        except ConfigurationError as error:
            yield Error(f"{where}['ARGUMENTS']: {error}", "Correct the path.", id="hipq.E035")


def source_problems() -> Iterator[Error]:
    """Yield the sources whose code does not fit; not a rule, because it imports user code."""
    for where, values in _sources():
        try:
            check_code(source_settings("", values))
        except ConfigurationError as error:
            hint = "Correct the path or the options."
            yield Error(f"{where}: {error}", hint, id="hipq.E024")


# The places that have options, and their names in messages

_Places = Iterator[tuple[str, dict[str, Any]]]


def _instances() -> _Places:
    for name, options in raw_setting().items():
        yield f"HIPQ[{name!r}]", options


def _members(key: str) -> _Places:
    for where, options in _instances():
        for name, values in options.get(key, {}).items():
            yield f"{where}[{key!r}][{name!r}]", values


_queues = partial(_members, "QUEUES")
_sources = partial(_members, "SOURCES")


# What the rules find: texts about what is wrong


def _not_dicts_of_dicts() -> Iterator[str]:
    setting = raw_setting()
    if not isinstance(setting, dict):
        yield f"HIPQ is {setting!r}, not a dict."
        return
    for name, options in setting.items():
        if name in INSTANCE_DEFAULTS:
            said = f'write HIPQ = {{"default": {{"{name}": …}}}}'
            yield f"HIPQ[{name!r}] is an option of an instance; {said}."
        elif not isinstance(options, dict):
            yield f"HIPQ[{name!r}] is {options!r}, not a dict."


def _wrong_names(what: str, names: Iterable[object]) -> Iterator[str]:
    for name in names:
        try:
            checked_name(what, name)
        except InvalidJobError as error:
            yield str(error)


def _wrong_instance_names() -> Iterator[str]:
    return _wrong_names("HIPQ instance", raw_setting())


def _wrong_member_names(key: str, what: str) -> Iterator[str]:
    for where, options in _instances():
        yield from _wrong_names(f"{where} {what}", options.get(key, {}))


def _unknown_options(places: Callable[[], _Places], known: dict[str, Any]) -> Iterator[str]:
    for where, options in places():
        for key in options.keys() - known.keys():
            yield f"{where}: unknown option {key!r}{nearest_name(str(key), known)}"


def _wrong_values(
    places: Callable[[], _Places], key: str, may_be: Callable[[Any], bool]
) -> Iterator[str]:
    for where, options in places():
        if key in options and not may_be(options[key]):
            yield f"{where}[{key!r}] is {options[key]!r}."


def _unknown_databases() -> Iterator[str]:
    for where, options in _instances():
        alias = options.get("DATABASE", "default")
        if not isinstance(alias, str) or alias not in settings.DATABASES:
            near = nearest_name(str(alias), settings.DATABASES)
            yield f"{where}['DATABASE'] is {alias!r}, which DATABASES does not have{near}"


def _unknown_orders() -> Iterator[str]:
    for where, values in _queues():
        order = values.get("ORDER", Order.TIME)
        if order not in Order.values:
            yield f"{where}['ORDER'] is {order!r}{nearest_name(str(order), Order.values)}"


def _sources_that_are_no_dicts() -> Iterator[str]:
    for where, options in _instances():
        sources = options.get("SOURCES", {})
        if not isinstance(sources, dict):
            yield f"{where}['SOURCES'] is a {type(sources).__name__}, not a dict."
            continue
        for source, values in sources.items():
            if not isinstance(values, dict):
                yield f"{where}['SOURCES'][{source!r}] is not a dict."


def _wrong_values_of_sources() -> Iterator[str]:
    for where, values in _sources():
        for text in wrong_values(values):
            yield f"{where}: {text}"


def _times_without_a_zone() -> Iterator[str]:
    if not settings.USE_TZ:
        yield "USE_TZ is False, but the times of jobs need a time zone."


def _databases() -> list[str]:
    instances = {DEFAULT: {}, **raw_setting()}.values()
    return sorted({options.get("DATABASE", "default") for options in instances})


def _databases_that_do_not_commit() -> Iterator[str]:
    for alias in _databases():
        if not settings.DATABASES.get(alias, {}).get("AUTOCOMMIT", True):
            yield f"DATABASES[{alias!r}]['AUTOCOMMIT'] is False: nothing would ever be committed."


def _databases_of_other_vendors() -> Iterator[str]:
    for alias in _databases():
        vendor = connections[alias].vendor
        if vendor not in VENDORS:
            yield f"DATABASES[{alias!r}] is {vendor}, on which hipq_django does not run."


# Which values are allowed


def _between(low: float, high: float) -> Callable[[Any], bool]:
    return lambda value: number_in(value, low, high) is not None


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_address(value: Any) -> bool:
    """Return whether a path may follow the value, which may also be empty."""
    if not isinstance(value, str) or any(char.isspace() or char in "?#" for char in value):
        return False
    try:
        parts = urlsplit(value)
        _ = parts.port  # which may be no number
    except ValueError:
        return False
    return not value or (parts.scheme in ("http", "https") and bool(parts.hostname))


def _is_dict_of_dicts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(inner, dict) for inner in value.values())


def _is_limit(value: Any) -> bool:
    try:
        checked_limit(value)
    except InvalidJobError:
        return False
    return True


def _is_list_of_text(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)


def _above_zero(most: float) -> tuple[str, str, Callable[[Any], bool]]:
    return "hipq.E005", f"Give a number above 0, at most {most:,}.", _between(ABOVE_ZERO, most)


# The check of each option's value, its hint, and whether a value may be
_Values = dict[str, tuple[str, str, Callable[[Any], bool]]]

INSTANCE_VALUES: _Values = {
    "HEARTBEAT_SECONDS": _above_zero(MAX_SECONDS),
    "ANSWER_TTL_SECONDS": _above_zero(MAX_SECONDS),
    "ANSWER_RETENTION_DAYS": _above_zero(36_500),
    "CALLBACK_MAX_BYTES": (
        "hipq.E005",
        f"Give a whole number above 0, at most {MAX_SECONDS:,}.",
        lambda value: type(value) is int and 0 < value <= MAX_SECONDS,
    ),
    "NOTIFY": ("hipq.E016", "Give True or False.", _is_bool),
    "STRICT": (
        "hipq.E016",
        "Give True or False.",
        lambda value: value is None or _is_bool(value),
    ),
    "MAX_DATA_BYTES": (
        "hipq.E036",
        "Give a whole number of at least 1,000, or None for no bound.",
        lambda value: value is None or (type(value) is int and value >= 1_000),
    ),
    "CALLBACK_BASE_URL": (
        "hipq.E006",
        "Give the address of this site, without query and fragment, for example "
        "'https://shop.example'.",
        _is_address,
    ),
    "ARGUMENTS": (
        "hipq.E029",
        "Give a dotted path, for example 'hipq_django.arguments.PydanticArguments'.",
        lambda value: isinstance(value, str),
    ),
    "AUTODISCOVER": (
        "hipq.E034",
        "Give a list of names of modules, for example ['jobs', 'tasks'].",
        lambda value: _is_list_of_text(value) and all(map(str.isidentifier, value)),
    ),
    "QUEUES": ("hipq.E007", 'Write {"bank": {"THROTTLE_LIMIT": 10}}.', _is_dict_of_dicts),
}
QUEUE_VALUES: _Values = {
    "THROTTLE_LIMIT": ("hipq.E010", "Give a number; below 1 means unlimited.", _is_limit),
    **{
        name.upper(): ("hipq.E012", f"Give a number from {low} to {high}.", _between(low, high))
        for name, (low, high) in QUEUE_RANGES.items()
    },
    "THROTTLERS": (
        "hipq.E013",
        'Give a list of dotted paths, for example ["payments.limits.by_region"].',
        _is_list_of_text,
    ),
}


# The rules


class Rule(NamedTuple):
    """What a check finds wrong with the setting: `find` yields it, given `about`."""

    check_id: str
    hint: str
    find: Callable[..., Iterator[str]]
    about: tuple[Any, ...] = ()


def _of_values(places: Callable[[], _Places], values: _Values) -> Iterator[Rule]:
    for key, (check_id, hint, may_be) in values.items():
        yield Rule(check_id, hint, _wrong_values, (places, key, may_be))


RULES = (
    Rule("hipq.E001", 'Write HIPQ = {"default": {…}}.', _not_dicts_of_dicts),
    Rule("hipq.E002", "Rename the instance.", _wrong_instance_names),
    Rule("hipq.E003", "Correct or remove it.", _unknown_options, (_instances, INSTANCE_DEFAULTS)),
    Rule("hipq.E004", "Name an alias of DATABASES.", _unknown_databases),
    *_of_values(_instances, INSTANCE_VALUES),
    Rule("hipq.E008", "Rename the queue.", _wrong_member_names, ("QUEUES", "queue")),
    Rule("hipq.E009", "Correct or remove it.", _unknown_options, (_queues, QUEUE_DEFAULTS)),
    *_of_values(_queues, QUEUE_VALUES),
    Rule("hipq.E011", "Choose one of them.", _unknown_orders),
    Rule(
        "hipq.E020",
        'Write {"payments": {"SOURCE": "…", "OPTIONS": {…}, "MAP": "…"}}.',
        _sources_that_are_no_dicts,
    ),
    Rule("hipq.E021", "Rename the source.", _wrong_member_names, ("SOURCES", "source")),
    Rule("hipq.E022", "Correct or remove it.", _unknown_options, (_sources, SOURCE_DEFAULTS)),
    Rule("hipq.E023", "Correct the value.", _wrong_values_of_sources),
    Rule(
        "hipq.E025",
        "Set USE_TZ = True; TIME_ZONE stays the zone of what people see and of time windows.",
        _times_without_a_zone,
    ),
    Rule(
        "hipq.E026",
        "Remove 'AUTOCOMMIT', or give hipq an alias of its own without it.",
        _databases_that_do_not_commit,
    ),
    Rule("hipq.E041", "Use PostgreSQL or SQLite.", _databases_of_other_vendors),
)
"""Later ones rely on earlier ones."""
