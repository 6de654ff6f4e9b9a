"""The HIPQ setting: its keys, defaults and rules.

`HIPQ = {instance: {"DATABASE": …, "QUEUES": {queue: {…}}}}`; it works with no setting at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from math import isfinite
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.utils.module_loading import import_string

from hipq_django.domain.ordering import Order
from hipq_django.domain.validation import (
    FACTOR_DECIMALS,
    MAX_FACTOR,
    MAX_SECONDS,
    checked_factor,
    checked_name,
)
from hipq_django.exceptions import ConfigurationError, InvalidJobError, nearest_name
from hipq_django.sources.settings import (
    check_code,
    source_settings,
    unknown_options,
    wrong_values,
)

if TYPE_CHECKING:
    from hipq_django.domain.throttling import Throttler

DEFAULT = "default"

INSTANCE_DEFAULTS: dict[str, Any] = {
    "DATABASE": "default",
    "CALLBACK_BASE_URL": "",
    "CALLBACK_MAX_BYTES": 1_048_576,
    "HEARTBEAT_SECONDS": 10,
    "NOTIFY": True,
    "ANSWER_TTL_SECONDS": 86_400,
    "ANSWER_RETENTION_DAYS": 14,
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


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with the setting; `check_id` is the system check that finds it."""

    check_id: str
    message: str
    hint: str


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
    low, high = QUEUE_RANGES[name]
    if _is_number(value) and low <= value <= high:
        return float(value)
    raise InvalidJobError(f"{name} {value!r}: give a number from {low:,} to {high:,}.")


def throttler_at(path: str) -> Throttler:
    """Return a throttler by its dotted path; raise `ConfigurationError` where it is none."""
    try:
        throttler = import_string(path)
    except Exception as error:  # importing runs the project's code
        what = error if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
        raise ConfigurationError(f"throttler {path!r} cannot be imported: {what}.") from error
    if not callable(throttler) or isinstance(throttler, type):
        raise ConfigurationError(
            f"throttler {path!r} is {throttler!r}; name a function or an instance such as "
            'limits.by_tenant = hipq_django.KeyLimit("tenant", 5).'
        )
    return throttler  # type: ignore[no-any-return]  # imported by its path


# The rules, one function for each check id.

Rule = Callable[[], Iterator[Problem]]
RULES: dict[str, Rule] = {}


def problems() -> Iterator[Problem]:
    """Yield what is wrong with the setting; later rules rely on earlier ones."""
    for rule in RULES.values():
        found = list(rule())
        yield from found
        if found:
            return


def _rule(check_id: str) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        RULES[check_id] = rule
        return rule

    return register


NOTHING: dict[str, dict[str, Any]] = {}


def raw_setting() -> dict[str, dict[str, Any]]:
    """Return the setting as it was given."""
    return getattr(settings, "HIPQ", NOTHING)


def _queues() -> Iterator[tuple[str, dict[str, Any]]]:
    for instance, options in raw_setting().items():
        for queue, values in options.get("QUEUES", {}).items():
            yield f"HIPQ[{instance!r}]['QUEUES'][{queue!r}]", values


def _sources() -> Iterator[tuple[str, dict[str, Any]]]:
    for instance, options in raw_setting().items():
        for source, values in options.get("SOURCES", {}).items():
            yield f"HIPQ[{instance!r}]['SOURCES'][{source!r}]", values


@_rule("hipq.E001")
def _setting_is_a_dict_of_dicts() -> Iterator[Problem]:
    setting = raw_setting()
    hint = 'Write HIPQ = {"default": {…}}.'
    if not isinstance(setting, dict):
        yield Problem("hipq.E001", f"HIPQ is {setting!r}, not a dict.", hint)
        return
    for name, options in setting.items():
        if name in INSTANCE_DEFAULTS:
            said = f'write HIPQ = {{"default": {{"{name}": …}}}}'
            yield Problem("hipq.E001", f"HIPQ[{name!r}] is an option of an instance; {said}.", hint)
        elif not isinstance(options, dict):
            yield Problem("hipq.E001", f"HIPQ[{name!r}] is {options!r}, not a dict.", hint)


@_rule("hipq.E002")
def _instance_names_are_names() -> Iterator[Problem]:
    for name in raw_setting():
        try:
            checked_name("HIPQ instance", name)
        except InvalidJobError as error:
            yield Problem("hipq.E002", str(error), "Rename the instance.")


@_rule("hipq.E003")
def _instance_options_are_known() -> Iterator[Problem]:
    for name, options in raw_setting().items():
        for key in options.keys() - INSTANCE_DEFAULTS.keys():
            near = nearest_name(str(key), INSTANCE_DEFAULTS)
            yield Problem(
                "hipq.E003",
                f"HIPQ[{name!r}]: unknown option {key!r}{near}",
                "Correct or remove it.",
            )


@_rule("hipq.E004")
def _database_is_an_alias() -> Iterator[Problem]:
    for name, options in raw_setting().items():
        alias = options.get("DATABASE", "default")
        if not isinstance(alias, str) or alias not in settings.DATABASES:
            near = nearest_name(str(alias), settings.DATABASES)
            yield Problem(
                "hipq.E004",
                f"HIPQ[{name!r}]['DATABASE'] is {alias!r}, which DATABASES does not have{near}",
                "Name an alias of DATABASES.",
            )


_MOST = {
    "HEARTBEAT_SECONDS": MAX_SECONDS,
    "ANSWER_TTL_SECONDS": MAX_SECONDS,
    "ANSWER_RETENTION_DAYS": 36_500,
    "CALLBACK_MAX_BYTES": MAX_SECONDS,
}


@_rule("hipq.E005")
def _durations_are_positive() -> Iterator[Problem]:
    for name, options in raw_setting().items():
        for key, most in _MOST.items():
            value = options.get(key, 1)
            if not _is_number(value) or not 0 < value <= most:
                yield Problem(
                    "hipq.E005",
                    f"HIPQ[{name!r}][{key!r}] is {value!r}.",
                    f"Give a number above 0, at most {most:,}.",
                )


@_rule("hipq.E016")
def _notify_is_yes_or_no() -> Iterator[Problem]:
    for name, options in raw_setting().items():
        if not isinstance(value := options.get("NOTIFY", True), bool):
            yield Problem(
                "hipq.E016", f"HIPQ[{name!r}]['NOTIFY'] is {value!r}.", "Give True or False."
            )


@_rule("hipq.E006")
def _callback_base_url_is_a_url() -> Iterator[Problem]:
    for name, options in raw_setting().items():
        url = options.get("CALLBACK_BASE_URL", "")
        if url != "" and not (isinstance(url, str) and url.startswith(("http://", "https://"))):
            yield Problem(
                "hipq.E006",
                f"HIPQ[{name!r}]['CALLBACK_BASE_URL'] is {url!r}.",
                "Give the address of this site, for example 'https://shop.example'.",
            )


@_rule("hipq.E007")
def _queues_are_a_dict_of_dicts() -> Iterator[Problem]:
    for name, options in raw_setting().items():
        queues = options.get("QUEUES", {})
        if not isinstance(queues, dict) or not all(isinstance(q, dict) for q in queues.values()):
            yield Problem(
                "hipq.E007",
                f"HIPQ[{name!r}]['QUEUES'] is {queues!r}.",
                'Write {"bank": {"THROTTLE_LIMIT": 10}}.',
            )


@_rule("hipq.E008")
def _queue_names_are_names() -> Iterator[Problem]:
    for name, options in raw_setting().items():
        for queue in options.get("QUEUES", {}):
            try:
                checked_name(f"HIPQ[{name!r}] queue", queue)
            except InvalidJobError as error:
                yield Problem("hipq.E008", str(error), "Rename the queue.")


@_rule("hipq.E009")
def _queue_options_are_known() -> Iterator[Problem]:
    for where, values in _queues():
        for key in values.keys() - QUEUE_DEFAULTS.keys():
            near = nearest_name(str(key), QUEUE_DEFAULTS)
            yield Problem(
                "hipq.E009", f"{where}: unknown option {key!r}{near}", "Correct or remove it."
            )


@_rule("hipq.E010")
def _limits_are_numbers() -> Iterator[Problem]:
    for where, values in _queues():
        try:
            checked_limit(values.get("THROTTLE_LIMIT", 0))
        except InvalidJobError:
            yield Problem(
                "hipq.E010",
                f"{where}['THROTTLE_LIMIT'] is {values['THROTTLE_LIMIT']!r}.",
                "Give a number; below 1 means unlimited.",
            )


@_rule("hipq.E011")
def _orders_are_known() -> Iterator[Problem]:
    for where, values in _queues():
        order = values.get("ORDER", Order.TIME)
        if order not in Order.values:
            yield Problem(
                "hipq.E011",
                f"{where}['ORDER'] is {order!r}{nearest_name(str(order), Order.values)}",
                "Choose one of them.",
            )


@_rule("hipq.E012")
def _queue_numbers_are_in_range() -> Iterator[Problem]:
    for where, values in _queues():
        for name, (low, high) in QUEUE_RANGES.items():
            key = name.upper()
            try:
                checked_queue_number(name, values.get(key, low))
            except InvalidJobError:
                yield Problem(
                    "hipq.E012",
                    f"{where}[{key!r}] is {values[key]!r}.",
                    f"Give a number from {low} to {high}.",
                )


@_rule("hipq.E013")
def _throttlers_are_dotted_paths() -> Iterator[Problem]:
    for where, values in _queues():
        paths = values.get("THROTTLERS", [])
        if not isinstance(paths, list | tuple) or not all(isinstance(p, str) for p in paths):
            yield Problem(
                "hipq.E013",
                f"{where}['THROTTLERS'] is {paths!r}.",
                'Give a list of dotted paths, for example ["payments.limits.by_region"].',
            )


def throttler_problems() -> Iterator[Problem]:
    """Yield the throttlers that cannot be imported; not a rule, because it imports user code."""
    for where, values in _queues():
        for path in values.get("THROTTLERS", []):
            try:
                throttler_at(path)
            except ConfigurationError as error:
                yield Problem("hipq.E014", f"{where}: {error}", "Correct the path.")


@_rule("hipq.E020")
def _sources_are_a_dict_of_dicts() -> Iterator[Problem]:
    hint = 'Write {"payments": {"SOURCE": "…", "OPTIONS": {…}, "MAP": "…"}}.'
    for name, options in raw_setting().items():
        sources = options.get("SOURCES", {})
        where = f"HIPQ[{name!r}]['SOURCES']"
        if not isinstance(sources, dict):
            yield Problem("hipq.E020", f"{where} is a {type(sources).__name__}, not a dict.", hint)
            continue
        for source, values in sources.items():
            if not isinstance(values, dict):
                yield Problem("hipq.E020", f"{where}[{source!r}] is not a dict.", hint)


@_rule("hipq.E021")
def _source_names_are_names() -> Iterator[Problem]:
    for name, options in raw_setting().items():
        for source in options.get("SOURCES", {}):
            try:
                checked_name(f"HIPQ[{name!r}] source", source)
            except InvalidJobError as error:
                yield Problem("hipq.E021", str(error), "Rename the source.")


@_rule("hipq.E022")
def _source_options_are_known() -> Iterator[Problem]:
    for where, values in _sources():
        for text in unknown_options(values):
            yield Problem("hipq.E022", f"{where}: {text}", "Correct or remove it.")


@_rule("hipq.E023")
def _source_values_can_be() -> Iterator[Problem]:
    for where, values in _sources():
        for text in wrong_values(values):
            yield Problem("hipq.E023", f"{where}: {text}", "Correct the value.")


def source_problems() -> Iterator[Problem]:
    """Yield the sources without code that fits; not a rule, because it imports user code."""
    for where, values in _sources():
        try:
            check_code(source_settings("", values))
        except ConfigurationError as error:
            yield Problem("hipq.E024", f"{where}: {error}", "Correct the path or the options.")


@_rule("hipq.E030")
def _times_have_a_zone() -> Iterator[Problem]:
    if not settings.USE_TZ:
        yield Problem(
            "hipq.E030",
            "USE_TZ is False, but the times of jobs are moments, in all time zones the same.",
            "Set USE_TZ = True; TIME_ZONE stays the zone of what people see and of time windows.",
        )


@_rule("hipq.E031")
def _databases_commit() -> Iterator[Problem]:
    instances = {DEFAULT: {}, **raw_setting()}.values()
    for alias in sorted({options.get("DATABASE", "default") for options in instances}):
        if not settings.DATABASES.get(alias, {}).get("AUTOCOMMIT", True):
            yield Problem(
                "hipq.E031",
                f"DATABASES[{alias!r}]['AUTOCOMMIT'] is False: nothing would ever be committed.",
                "Remove 'AUTOCOMMIT', or give hipq an alias of its own without it.",
            )


def _is_number(value: Any) -> bool:
    if isinstance(value, float):
        return isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)
