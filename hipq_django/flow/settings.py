"""The settings of flows: the key FLOW of an instance."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from django.http import HttpRequest
from django.utils.module_loading import import_string

from hipq_django.conf.instances import get_instance
from hipq_django.domain.validation import number_in
from hipq_django.exceptions import ConfigurationError, nearest_name

COPIES = 32
"""How often a request may write as much as its body may have: to connected ports, and channels."""

LOGS = ("errors", "all", "none")
FUNCTION = "a function: request → user, or None for nobody"


@dataclass(frozen=True)
class FlowSettings:
    """What an instance says of flows."""

    max_depth: int = 20
    max_message_bytes: int = 1_048_576
    log: str = "errors"
    log_retention_days: float = 14
    api_user: Callable[[HttpRequest], Any] | None = None
    """Who makes a request of the HTTP API; None: the user of the session."""
    public_jobs: tuple[str, ...] = ()
    """The job types that graphs from outside may have as stages."""

    @property
    def max_body_bytes(self) -> int:
        """How large the body of a request may be: a message, and what is said of it."""
        return self.max_message_bytes + 65_536

    @property
    def max_written_bytes(self) -> int:
        """How much a request may write, so that none holds its transaction open for long."""
        return COPIES * self.max_body_bytes


_KEYS = {field.name.upper(): field.name for field in fields(FlowSettings)}


_read: dict[str, tuple[Mapping[str, Any], FlowSettings]] = {}
"""What was read last, and its values; read again when tests replace the setting."""


def flow_settings(instance: str) -> FlowSettings:
    """Return the settings of flows; raise `ConfigurationError` for a wrong one."""
    given = get_instance(instance).flow
    known = _read.get(instance)
    if known is None or known[0] is not given:
        known = _read[instance] = (given, _checked(instance, given))
    return known[1]


def _checked(instance: str, given: Mapping[str, Any]) -> FlowSettings:
    for key in given:
        if key not in _KEYS:
            near = nearest_name(key, _KEYS)
            raise ConfigurationError(f"HIPQ[{instance!r}]['FLOW'] has no key {key!r}{near}")
    found = FlowSettings(**{_KEYS[key]: value for key, value in given.items()})
    _check(instance, "LOG", found.log, found.log in LOGS, "'errors', 'all' or 'none'")
    for key, lowest in (("MAX_DEPTH", 1), ("MAX_MESSAGE_BYTES", 100)):
        value = getattr(found, _KEYS[key])
        is_whole = isinstance(value, int) and not isinstance(value, bool) and value >= lowest
        _check(instance, key, value, is_whole, f"a whole number of at least {lowest:,}")
    days = number_in(found.log_retention_days, 0, 36_500)
    rule = "a number of days from 0 to 36,500"
    _check(instance, "LOG_RETENTION_DAYS", found.log_retention_days, days is not None, rule)
    jobs = found.public_jobs
    is_list = isinstance(jobs, list | tuple) and all(isinstance(name, str) for name in jobs)
    _check(instance, "PUBLIC_JOBS", jobs, is_list, "a list of names of job types")
    return replace(
        found, public_jobs=tuple(jobs), api_user=_read_function(instance, found.api_user)
    )


def _check(instance: str, key: str, value: Any, is_right: bool, rule: str) -> None:
    if not is_right:
        raise ConfigurationError(f"HIPQ[{instance!r}]['FLOW'][{key!r}] is {value!r}; give {rule}.")


def _read_function(instance: str, given: Any) -> Any:
    """Return the function that API_USER names, or None."""
    found = given
    try:
        if isinstance(given, str):
            found = import_string(given)
    except Exception as error:  # the module is the project's code
        raise ConfigurationError(
            f"HIPQ[{instance!r}]['FLOW']['API_USER']: {given!r} cannot be imported: "
            f"{type(error).__name__}: {error}"
        ) from error
    is_function = found is None or callable(found)
    _check(instance, "API_USER", given, is_function, f"{FUNCTION}, or its dotted path")
    return found
