"""What is wrong with the HIPQ setting, and with what it depends on.

`HIPQ = {instance: {"DATABASE": …, "QUEUES": {queue: {…}}}}`; it works with no setting at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.db import connections

from hipq_django.arguments import Arguments
from hipq_django.conf.options import INSTANCE, QUEUE, SOURCE, source_settings
from hipq_django.conf.sharding import (
    shard_key_problems,
    throttler_beside_shards,
    wrong_shards,
)
from hipq_django.conf.tables import wrong_names, wrong_tables
from hipq_django.domain.options import Option, Options, WrongKeyError
from hipq_django.domain.throttling import Throttler
from hipq_django.domain.validation import checked_name
from hipq_django.exceptions import ConfigurationError, InvalidJobError, nearest_name
from hipq_django.sources.settings import check_code, imported

DEFAULT = "default"
VENDORS = ("postgresql", "sqlite", "unknown")
"""The kinds of databases that it runs on; of the last Django says that it is not set up."""

NOTHING: dict[str, dict[str, Any]] = {}


def raw_setting() -> dict[str, dict[str, Any]]:
    """Return the setting as it was given."""
    return getattr(settings, "HIPQ", NOTHING)


def problems() -> Iterator[Error]:
    """Yield what is wrong, of the outermost level where something is: the others rely on it."""
    levels = (
        _wrong_shape, _wrong_instances, _wrong_members, _wrong_shards, _wrong_surroundings,
        _wrong_tables,
    )  # fmt: skip
    for level in levels:
        wrong = [*level()]
        if wrong:
            yield from wrong
            return


def wrong_options(where: str, known: Options, given: Mapping[str, Any]) -> Iterator[Error]:
    """Yield an error for each unknown option, and for each with a wrong value."""
    for key in given.keys() - known.defaults.keys():
        near = nearest_name(str(key), known.defaults)
        text = f"{where}: unknown option {key!r}{near}"
        yield Error(text, "Correct or remove it.", id=known.unknown_id)
    for option in known.options:
        value = given.get(option.name, option.default)
        try:
            option.check(value)
        except (ValueError, ConfigurationError) as error:
            text = f"{where}[{option.name!r}]{_wrong_value(option, value, error)}"
            yield Error(text, f"Give {option.allowed}.", id=option.wrong_id or known.wrong_id)


def _wrong_value(option: Option, value: Any, error: Exception) -> str:
    if option.is_secret:
        return f" is wrong, and of type {type(value).__name__}."
    match error:
        case ConfigurationError():
            return f": {error}"
        case WrongKeyError():
            return f" has {error}"
    return f" is {value!r}."


def _wrong_shape() -> Iterator[Error]:
    setting = raw_setting()
    hint = 'Write HIPQ = {"default": {…}}.'
    if not isinstance(setting, dict):
        yield Error(f"HIPQ is {setting!r}, not a dict.", hint, id="hipq.E001")
        return
    for name, options in setting.items():
        if name in INSTANCE.defaults:
            text = f'is an option of an instance; write HIPQ = {{"default": {{"{name}": …}}}}'
            yield Error(f"HIPQ[{name!r}] {text}.", hint, id="hipq.E001")
        elif not isinstance(options, dict):
            yield Error(f"HIPQ[{name!r}] is {options!r}, not a dict.", hint, id="hipq.E001")


def _wrong_instances() -> Iterator[Error]:
    yield from _wrong_names("HIPQ instance", raw_setting(), "hipq.E002")
    for where, options in _instances():
        yield from wrong_options(where, INSTANCE, options)


def _wrong_members() -> Iterator[Error]:
    for key, known, check_id in (("QUEUES", QUEUE, "hipq.E008"), ("SOURCES", SOURCE, "hipq.E021")):
        for where, options in _instances():
            what = f"{where} {key.lower()[:-1]}"
            yield from _wrong_names(what, options.get(key, {}), check_id)
        for where, values in _members(key):
            yield from wrong_options(where, known, values)


def _wrong_names(what: str, names: Iterable[object], check_id: str) -> Iterator[Error]:
    for name in names:
        try:
            checked_name(what, name)
        except InvalidJobError as error:
            yield Error(str(error), "Correct the name.", id=check_id)


def _wrong_shards() -> Iterator[Error]:
    yield from wrong_shards(raw_setting())


def _wrong_surroundings() -> Iterator[Error]:
    if not settings.USE_TZ:
        yield Error(
            "USE_TZ is False, but the times of jobs need a time zone.",
            "Set USE_TZ = True; TIME_ZONE stays the zone of what people see and of time windows.",
            id="hipq.E025",
        )
    instances = {DEFAULT: {}, **raw_setting()}.values()
    for alias in sorted({alias for options in instances for alias in _aliases(options)}):
        if not settings.DATABASES.get(alias, {}).get("AUTOCOMMIT", True):
            yield Error(
                f"DATABASES[{alias!r}]['AUTOCOMMIT'] is False: nothing would ever be committed.",
                "Remove 'AUTOCOMMIT', or give hipq an alias of its own without it.",
                id="hipq.E026",
            )
        if (vendor := connections[alias].vendor) not in VENDORS:
            yield Error(
                f"DATABASES[{alias!r}] is {vendor}, on which hipq_django does not run.",
                "Use PostgreSQL or SQLite.",
                id="hipq.E041",
            )
    yield from _different_engines()


def _wrong_tables() -> Iterator[Error]:
    for name, options in raw_setting().items():
        yield from wrong_tables(name, options, _aliases(options))


def _different_engines() -> Iterator[Error]:
    first: dict[str, tuple[str, str]] = {}
    for name, options in {DEFAULT: {}, **raw_setting()}.items():
        engine = options.get("ENGINE", INSTANCE.defaults["ENGINE"])
        for alias in _aliases(options):
            other, others = first.setdefault(alias, (name, engine))
            if engine != others:
                where = f"HIPQ[{other!r}] and HIPQ[{name!r}]"
                text = f"{where} are on database {alias!r} with different ENGINE."
                yield Error(text, "Give both the same.", id="hipq.E040")


def _aliases(options: Mapping[str, Any]) -> Sequence[str]:
    return options.get("SHARDS") or [options.get("DATABASE", "default")]


# The places that have options, and their names in messages

_Places = Iterator[tuple[str, dict[str, Any]]]


def _instances() -> _Places:
    for name, options in raw_setting().items():
        yield f"HIPQ[{name!r}]", options


def _members(key: str) -> _Places:
    for where, options in _instances():
        for name, values in options.get(key, {}).items():
            yield f"{where}[{key!r}][{name!r}]", values


# The code that the setting names: it is imported after everything else was found right


def throttler_problems() -> Iterator[Error]:
    """Yield the throttlers that cannot be used."""
    for where, values in _members("QUEUES"):
        for path in values.get("THROTTLERS", []):
            yield from _unusable(where, "hipq.E014", throttler_at, path)


def arguments_problems() -> Iterator[Error]:
    """Yield the converters that cannot be used."""
    for where, options in _instances():
        path = options.get("ARGUMENTS", INSTANCE.defaults["ARGUMENTS"])
        yield from _unusable(f"{where}['ARGUMENTS']", "hipq.E035", arguments_at, path)


def source_problems() -> Iterator[Error]:
    """Yield the sources whose code does not fit."""
    for where, values in _members("SOURCES"):
        yield from _unusable(where, "hipq.E024", check_code, source_settings("", values))


def sharding_problems(name: str) -> Iterator[CheckMessage]:
    """Yield E055, W056 and E057 of an instance that has SHARDS."""
    given = raw_setting().get(name, {})
    shards = given.get("SHARDS")
    if shards is None:
        return
    yield from shard_key_problems(name, given)
    for queue, values in given.get("QUEUES", {}).items():
        where = f"HIPQ[{name!r}]['QUEUES'][{queue!r}]"
        for path in values.get("THROTTLERS", []):
            with suppress(ConfigurationError):  # which is E014
                yield from throttler_beside_shards(where, throttler_at(path), len(shards))


def table_problems() -> Iterator[Error]:
    """Yield E060, where two queues in one database have the same name, or one has none."""
    taken: dict[str, dict[str, object]] = {}
    for name, options in raw_setting().items():
        for alias in _aliases(options)[:1]:
            yield from wrong_names(name, options, taken.setdefault(alias, {}))


def _unusable(
    where: str, check_id: str, check: Callable[[Any], object], value: object
) -> Iterator[Error]:
    try:
        check(value)
    except ConfigurationError as error:
        yield Error(f"{where}: {error}", "Correct the path or the options.", id=check_id)


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
