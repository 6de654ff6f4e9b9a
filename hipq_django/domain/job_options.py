"""The options of a job: what each may be, its default, and where it is given or changed. Pure.

An option with a column has a default in the declaration of a job type, `Declaration.defaults`, and
in its row. What a type says of all its jobs, such as its policy, its sensitive fields and its
aliases, is no option of a job, and stands in `Declaration` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

from hipq_django.domain.validation import (
    aware_moment,
    checked_data,
    checked_delay,
    checked_factor,
    checked_key,
    checked_priority,
    checked_timeout,
    checked_windows,
    checked_zone,
)

GIVEN = "given"
"""An option that a new job is given, instead of the default of its type."""
CHANGED = "changed"
"""One that a retry handler may change, and that a requeued job has from the one before."""
EDITED = "edited"
"""One that an operator may edit while the job waits."""


@dataclass(frozen=True, slots=True)
class JobOption:
    """One option of a job; `check` returns the value that is stored.

    `column` is the column of a job type that has the default of its jobs.
    """

    name: str
    check: Callable[[Any], Any]
    places: tuple[str, ...]
    column: str = ""
    default: Any = None


OPTIONS = (
    JobOption("job_data", checked_data, (CHANGED,)),
    JobOption("job_key", checked_key, (CHANGED,)),
    JobOption("scheduled_run_time", partial(aware_moment, "scheduled_run_time"), (GIVEN, EDITED)),
    JobOption("delay", checked_delay, (GIVEN,)),
    JobOption("priority", checked_priority, (GIVEN, CHANGED, EDITED), "default_priority", 100),
    JobOption(
        "throttle_factor", checked_factor, (GIVEN, CHANGED, EDITED), "default_throttle_factor", 1
    ),
    JobOption("timeout", checked_timeout, (GIVEN, CHANGED), "default_timeout", 86_400),
    JobOption("time_windows", checked_windows, (GIVEN, CHANGED), "default_time_windows", ()),
    JobOption("time_zone", checked_zone, (), "time_zone", ""),
)
OF_TYPES = tuple(option for option in OPTIONS if option.column)
"""Those whose defaults a job type declares, and an operator may edit."""
DEFAULTS = {option.column: option.default for option in OF_TYPES}


def checks(place: str) -> dict[str, Callable[[Any], Any]]:
    """Return the checks of the options that are given, changed or edited."""
    return {option.name: option.check for option in OPTIONS if place in option.places}


def in_json(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values of options as JSON has them, which a check reads again."""
    return {name: _in_json(value) for name, value in values.items()}


def _in_json(value: Any) -> Any:
    match value:
        case Decimal():
            return float(value)
        case datetime():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
    return value
