"""The settings of flows: the key FLOW of an instance."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.core.checks import Error
from django.http import HttpRequest

from hipq_django.conf.instances import get_instance
from hipq_django.conf.rules import wrong_options
from hipq_django.domain.options import Number, Option, Options, Words, texts
from hipq_django.exceptions import ConfigurationError
from hipq_django.sources.settings import imported

COPIES = 32
"""How often a request may write as much as its body may have: to connected ports, and channels."""

LOGS = ("errors", "all", "none")


def _function(value: Any) -> Any:
    """Return the function that API_USER is, or names."""
    found = imported("function", value) if isinstance(value, str) else value
    if found is not None and not callable(found):
        raise ValueError(value)
    return found


FUNCTION = "a function: request → user, or None for nobody; or its dotted path"
FLOW = Options(
    "hipq.E038",
    "hipq.E038",
    (
        Option("MAX_DEPTH", 20, Number(1, whole=True)),
        Option("MAX_MESSAGE_BYTES", 1_048_576, Number(100, whole=True)),
        Option("LOG", "errors", Words(LOGS)),
        Option("LOG_RETENTION_DAYS", 14, Number(0, 36_500)),
        Option("API_USER", None, _function, FUNCTION),
        Option("PUBLIC_JOBS", (), texts, "a list of names of job types"),
    ),
)


@dataclass(frozen=True)
class FlowSettings:
    """What an instance says of flows."""

    max_depth: int
    max_message_bytes: int
    log: str
    log_retention_days: float
    api_user: Callable[[HttpRequest], Any] | None
    """Who makes a request of the HTTP API; None: the user of the session."""
    public_jobs: tuple[str, ...]
    """The job types that graphs from outside may have as stages."""

    @property
    def max_body_bytes(self) -> int:
        """How large the body of a request may be: a message, and what is said of it."""
        return self.max_message_bytes + 65_536

    @property
    def max_written_bytes(self) -> int:
        """How much a request may write, so that none holds its transaction open for long."""
        return COPIES * self.max_body_bytes


_read: dict[str, tuple[Mapping[str, Any], FlowSettings]] = {}
"""What was read last, and its values; read again when tests replace the setting."""


def flow_settings(instance: str) -> FlowSettings:
    """Return the settings of flows; raise `ConfigurationError` for a wrong one."""
    given = get_instance(instance).flow
    known = _read.get(instance)
    if known is None or known[0] is not given:
        for problem in flow_problems(instance):
            raise ConfigurationError(f"{problem.msg} {problem.hint}")
        known = _read[instance] = (given, FlowSettings(**FLOW.read(given)))
    return known[1]


def flow_problems(instance: str) -> Iterator[Error]:
    """Yield what is wrong with the settings of flows of an instance."""
    return wrong_options(f"HIPQ[{instance!r}]['FLOW']", FLOW, get_instance(instance).flow)
