"""All log lines of the package: what happened, as a word, with fields that say to what.

Each goes to the logger `hipq_django`. The word and the fields are attributes of the record, for
whoever collects logs by their fields (JSON formatters, Sentry, OpenTelemetry); written as text it
is `event=job_failed job_id=7 job_type=charge_card attempt=3: its policy gives up`.
"""

from __future__ import annotations

import logging
import re
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hipq_django.models import Job

LOGGER = logging.getLogger("hipq_django")

_PLAIN = re.compile(r"""[^\s"'=]+""")


class Fields:
    """Fields as text, which is made when somebody reads it."""

    def __init__(self, fields: Mapping[str, Any], sentence: str) -> None:
        self._fields = fields
        self._sentence = sentence

    def __str__(self) -> str:
        text = " ".join(f"{name}={_shown(value)}" for name, value in self._fields.items())
        return f"{text}: {self._sentence}" if self._sentence else text


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    text = str(value)
    return text if _PLAIN.fullmatch(text) else repr(text)


def is_logged(level: int) -> bool:
    """Return whether anybody reads lines of this level; asked before many are made."""
    return LOGGER.isEnabledFor(level)


def log(
    level: int,
    event: str,
    sentence: str = "",
    *,
    exception: BaseException | None = None,
    traceback: str = "",
    logger: logging.Logger = LOGGER,
    **fields: Any,
) -> None:
    """Log one event; `sentence` says what people should know beyond the fields.

    `exception` is what made it happen; `traceback` its text, where that is known already.
    """
    if not logger.isEnabledFor(level):
        return
    shown = {name: value for name, value in fields.items() if value is not None}
    info = (type(exception), exception, exception.__traceback__) if exception else None
    file, line, function, _ = logger.findCaller(stacklevel=2)
    text, shown_fields = f"event={event} %s", (Fields(shown, sentence),)
    extra = {"event": event, **shown}
    record = logger.makeRecord(
        logger.name, level, file, line, text, shown_fields, info, function, extra
    )
    if traceback:
        record.exc_text = traceback.rstrip()
    logger.handle(record)


debug = partial(log, logging.DEBUG)
info = partial(log, logging.INFO)
warning = partial(log, logging.WARNING)
error = partial(log, logging.ERROR)
critical = partial(log, logging.CRITICAL)


def fields_of(job: Job) -> dict[str, Any]:
    """Return the fields that say which attempt of which job an event is about."""
    return {
        "job_id": job.pk,
        "job_type": job.job_type.name,
        "job_key": job.job_key,
        "queue": job.queue.name,
        "attempt": job.attempt,
    }
