"""All log lines of the package: an event as a word, with fields that say what it is about.

Each goes to the logger `hipq_django`. The word and the fields are attributes of the record, for
tools that collect logs by their fields (JSON formatters, Sentry, OpenTelemetry); as text it is
`event=job_failed job_id=7 job_type=charge_card attempt=3 msg="its policy gives up"`. An event is
one line, whatever its fields contain; the lines of a traceback below it are indented.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

LOGGER = logging.getLogger("hipq_django")

_is_plain = re.compile(r"""[^\s"'=]+""").fullmatch


class Fields:
    """Fields as text, which is made only when it is needed."""

    __slots__ = ("_fields", "_sentence")

    def __init__(self, fields: Mapping[str, Any], sentence: str) -> None:
        self._fields = fields
        self._sentence = sentence

    def __str__(self) -> str:
        parts = [
            # The first asks are quick, and enough for most values.
            f"{name}={value}"
            if type(value) is int or (type(value) is str and value.isidentifier())
            else f"{name}={_shown(value)}"
            for name, value in self._fields.items()
        ]
        if self._sentence:
            parts.append(f"msg={_quoted(self._sentence)}")
        return " ".join(parts)

    __repr__ = __str__  # Sentry sends the arguments of a line by it


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    text = str(value)
    return text if text.isprintable() and _is_plain(text) else _quoted(text)


def _quoted(text: str) -> str:
    return printable(json.dumps(text, ensure_ascii=False))


def printable(text: str, kept: str = "") -> str:
    """Return a text in which all control characters are escaped, but for those that are kept.

    What is shown in a terminal may come from outside: a partner's error, a name.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in kept else json.dumps(c)[1:-1] for c in text)


def _below(traceback: str, info: Any) -> str | None:
    """Return a traceback, known as text or of an exception, whose lines look like no event."""
    if info and not traceback:
        traceback = logging.Formatter().formatException(info)
    return "\n".join(f"  {printable(line)}" for line in traceback.rstrip().splitlines()) or None


_of_process: dict[str, Any] = {}


def name_process(**fields: Any) -> None:
    """Let all lines of this process begin with these fields; called again, with others."""
    _of_process.clear()
    _of_process.update(fields)


is_logged = LOGGER.isEnabledFor
"""Whether lines of a level are logged; asked before many are made."""


class LoggedRow(Protocol):
    """A job, or another row, that an event is about."""

    @property
    def log_fields(self) -> dict[str, Any]:
        """The fields that identify it."""

    @property
    def redactor(self) -> Any:
        """Masks what the log must not show of it."""


def log(  # noqa: PLR0913 - one call for all that a line may have
    level: int,
    event: str,
    sentence: str = "",
    *,
    row: LoggedRow | None = None,
    exception: BaseException | None = None,
    traceback: str = "",
    logger: logging.Logger = LOGGER,
    **fields: Any,
) -> None:
    """Log one event; `sentence` explains what the fields do not say.

    A line that may quote values of a job, or of another row, is logged with that `row`: it is
    masked here. `traceback` is the text of that of `exception`, if it is known already.
    """
    if not logger.isEnabledFor(level):
        return
    said = _Said(sentence, {n: v for n, v in fields.items() if v is not None}, exception, traceback)
    if row is not None:
        said = _masked(said, row)
    if _of_process:
        said = said._replace(fields=_of_process | said.fields)
    caller = sys._getframe(1)  # as `findCaller`, which looks at each frame
    code = caller.f_code
    place = (logger, level, event, code.co_filename, caller.f_lineno, code.co_name)
    _handle(_record_of(said, place), logger)


class _Said(NamedTuple):
    sentence: str
    fields: dict[str, Any]
    exception: BaseException | None
    traceback: str


def _masked(said: _Said, row: LoggedRow) -> _Said:
    """Add the fields of a row; mask all others."""
    sentence, fields, error, traceback = said
    masks = row.redactor
    if masks.fields:
        sentence, traceback = masks.mask_text(sentence), masks.mask_text(traceback)
        fields = {name: masks.mask(value) for name, value in fields.items()}
        error = None if error is None else masks.mask_error(error)
    return _Said(sentence, row.log_fields | fields, error, traceback)


def _record_of(said: _Said, place: _Place) -> logging.LogRecord:
    error = said.exception
    info = None if error is None else (type(error), error, error.__traceback__)
    shown = (Fields(said.fields, said.sentence),)
    like = _together.__dict__.get("records", {})
    known = like.get(place)
    if known is None:
        record = _record(place, shown, info)
        like[place] = type(record), record.__dict__.copy()
    else:
        kind, same = known
        record = kind.__new__(kind)
        record.__dict__ = same | {"args": shown, "exc_info": info}  # quicker than to update it
    record.__dict__.update(said.fields, event=place[2])
    record.exc_text = _below(said.traceback, info)
    return record


def _handle(record: logging.LogRecord, logger: logging.Logger) -> None:
    """Log a record: filters of the project are called by it, and they stop nothing."""
    try:
        logger.handle(record)
    except KeyboardInterrupt:
        raise
    except BaseException:
        note_unlogged(record)


def note_unlogged(record: logging.LogRecord) -> None:
    """Write to stderr that a filter of the project has failed at a line, as handlers do.

    The line is lost; what it tells of goes on.
    """
    if logging.raiseExceptions:
        logging.Handler().handleError(record)


_Place = tuple[logging.Logger, int, str, str, int, str]
"""Logger, level, event, file, line and function of what is logged."""

_together = threading.local()
"""`records`: those that the blocks of `together` in this thread made first, by their places."""


def _record(place: _Place, shown: tuple[Fields], info: Any) -> logging.LogRecord:
    logger, level, event, file, line, function = place
    text = f"event={event} %s"
    return logger.makeRecord(logger.name, level, file, line, text, shown, info, function)


class LineFormatter(logging.Formatter):
    """Writes time, level and message; the date and time are formatted once a second."""

    def __init__(self) -> None:
        super().__init__()
        self._last: tuple[int, str] = (0, "")

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record, and its traceback below."""
        line = f"{self._moment(record)} {record.levelname} {printable(record.getMessage())}"
        if not record.exc_text:  # of another package
            record.exc_text = _below("", record.exc_info)
        return f"{line}\n{record.exc_text}" if record.exc_text else line

    def _moment(self, record: logging.LogRecord) -> str:
        """Return when a record was made, in local time."""
        second, text = self._last
        if second != int(record.created):
            second = int(record.created)
            text = time.strftime(self.default_time_format, time.localtime(second))
            self._last = second, text
        return f"{text},{int(record.msecs):03d}"


class LinesHandler(logging.StreamHandler[Any]):
    """Writes lines to stderr; those of one `together` at once, because each write takes long."""

    MAX_CHARS = 1_000_000
    """How many characters are kept before they are written."""

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
    """Let the lines of a block be written at once, by handlers that can.

    To make a record takes longer than to write it. So records of the block that come from the same
    place have the time and thread of the first one.
    """
    with ExitStack() as stack:
        _together.records = {}
        stack.callback(_together.__dict__.clear)
        for handler in LOGGER.handlers:
            if isinstance(handler, LinesHandler):
                stack.enter_context(handler.together())
        yield


debug = partial(log, logging.DEBUG)
info = partial(log, logging.INFO)
warning = partial(log, logging.WARNING)
error = partial(log, logging.ERROR)
critical = partial(log, logging.CRITICAL)
