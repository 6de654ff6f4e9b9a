"""All log lines of the package: what happened, as a word, with fields that say to what.

Each goes to the logger `hipq_django`. The word and the fields are attributes of the record, for
whoever collects logs by their fields (JSON formatters, Sentry, OpenTelemetry); written as text it
is `event=job_failed job_id=7 job_type=charge_card attempt=3: its policy gives up`.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hipq_django.models import Job

LOGGER = logging.getLogger("hipq_django")

_is_plain = re.compile(r"""[^\s"'=]+""").fullmatch


class Fields:
    """Fields as text, which is made when somebody reads it."""

    __slots__ = ("_fields", "_sentence")

    def __init__(self, fields: Mapping[str, Any], sentence: str) -> None:
        self._fields = fields
        self._sentence = sentence

    def __str__(self) -> str:
        text = " ".join([f"{name}={_shown(value)}" for name, value in self._fields.items()])
        return f"{text}: {self._sentence}" if self._sentence else text


def _shown(value: Any) -> str:
    if type(value) is str:
        return value if _is_plain(value) else repr(value)
    if isinstance(value, float):
        return f"{value:g}"
    text = str(value)
    return text if _is_plain(text) else repr(text)


def is_logged(level: int) -> bool:
    """Return whether anybody reads lines of this level; asked before many are made."""
    return LOGGER.isEnabledFor(level)


class Raised(NamedTuple):
    """What made an event happen, and its traceback as text where that is known already."""

    exception: BaseException | None = None
    traceback: str = ""


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
    """Log one event; `sentence` says what people should know beyond the fields."""
    if logger.isEnabledFor(level):
        shown = {name: value for name, value in fields.items() if value is not None}
        log_fields(level, event, sentence, shown, Raised(exception, traceback), logger)


def log_fields(
    level: int,
    event: str,
    sentence: str,
    fields: dict[str, Any],
    raised: Raised,
    logger: logging.Logger = LOGGER,
) -> None:
    """Do the same for a level that is logged, and fields of which none is None."""
    exception, traceback = raised
    info = (type(exception), exception, exception.__traceback__) if exception else None
    file, line, function, _ = logger.findCaller(stacklevel=3)
    text, shown = f"event={event} %s", (Fields(fields, sentence),)
    record = logger.makeRecord(logger.name, level, file, line, text, shown, info, function)
    record.__dict__.update(fields, event=event)
    if traceback:
        record.exc_text = traceback.rstrip()
    logger.handle(record)


class LineFormatter(logging.Formatter):
    """Writes when, how grave, what; the date and time are worked out once a second."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s,%(msecs)03d %(levelname)s %(message)s")
        self._last: tuple[int, str] = (0, "")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802
        """Return the second of a record in local time."""
        second, text = self._last
        if second != int(record.created):
            second = int(record.created)
            text = time.strftime(datefmt or self.default_time_format, time.localtime(second))
            self._last = second, text
        return text


class LinesHandler(logging.StreamHandler[Any]):
    """Writes lines to stderr; those of one `together` at once, for each write takes long."""

    MAX_CHARS = 1_000_000
    """So much is kept until it is written."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(LineFormatter())
        self._kept = threading.local()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Keep the lines of this thread, and write them at the end."""
        self._kept.lines, self._kept.chars = [], 0
        try:
            yield
        finally:
            self._write_kept()
            del self._kept.lines

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, or keep it for the end of `together`."""
        if not hasattr(self._kept, "lines"):
            super().emit(record)
            return
        try:
            line = self.format(record) + self.terminator
        except Exception:
            self.handleError(record)
            return
        self._kept.lines.append(line)
        self._kept.chars += len(line)
        if self._kept.chars > self.MAX_CHARS:
            self._write_kept()

    def _write_kept(self) -> None:
        text = "".join(self._kept.lines)
        self._kept.lines, self._kept.chars = [], 0
        if text:
            self.acquire()
            try:
                self.stream.write(text)
                self.stream.flush()
            except (OSError, ValueError):
                pass  # nobody reads them any more
            finally:
                self.release()


@contextmanager
def together() -> Iterator[None]:
    """Let the lines of a block be written at once, by handlers that can."""
    with ExitStack() as stack:
        for handler in LOGGER.handlers:
            if isinstance(handler, LinesHandler):
                stack.enter_context(handler.together())
        yield


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
