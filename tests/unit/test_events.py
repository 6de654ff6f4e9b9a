"""Log lines: their text, their fields, and how they are written together."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from hipq_django import events
from tests.conftest import ROOT


class Writes(io.StringIO):
    """Remembers what was written at once."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []

    def write(self, text: str) -> int:
        self.parts.append(text)
        return super().write(text)


@pytest.fixture
def written() -> Iterator[Writes]:
    """What the handler of a worker writes."""
    handler, stream = events.LinesHandler(), Writes()
    handler.setStream(stream)
    events.LOGGER.addHandler(handler)
    yield stream
    events.LOGGER.removeHandler(handler)


def shown(text: str) -> list[str]:
    return [line.split(" ", 3)[3] for line in text.splitlines()]


@pytest.mark.loses_lines
@pytest.mark.parametrize("error", [LookupError("no request"), SystemExit(3)])
def test_a_filter_that_fails_stops_nothing_and_is_told_of(
    error: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(record: logging.LogRecord) -> bool:
        raise error

    events.LOGGER.addFilter(fail)
    try:
        events.error("job_failed", "final", job_id=7)
    finally:
        events.LOGGER.removeFilter(fail)

    told = capsys.readouterr().err
    assert "--- Logging error ---" in told
    assert f"{type(error).__name__}: {error}" in told
    assert "event=job_failed" in told
    assert 'job_id=7 msg="final"' in told


def test_log_lines_come_from_one_place() -> None:
    """The start looks whether the root logger has handlers; Kafka's client is given a logger."""
    package = ROOT / "hipq_django"
    logs = re.compile(r"\blogging\.(getLogger|debug|info|warning|error|exception|critical|log)\(")

    found = {path for path in package.rglob("*.py") if logs.search(path.read_text())}

    assert {path.relative_to(package).as_posix() for path in found} == {
        "events.py", "processes/start_up.py", "sources/kafka.py",
    }  # fmt: skip


def test_a_line_says_when_how_grave_and_what(written: Writes) -> None:
    events.error(
        "job_failed", "it has no retry policy", job_id=7, job_type="charge card", gone=None
    )

    [line] = written.getvalue().splitlines()
    date, time, level, rest = line.split(" ", 3)
    assert (len(date), len(time), level) == (10, 12, "ERROR")
    assert rest == ('event=job_failed job_id=7 job_type="charge card" msg="it has no retry policy"')


def test_nothing_that_is_logged_begins_a_line_or_steers_a_terminal(written: Writes) -> None:
    """A partner's error, a name: they come from outside."""
    evil = 'a\n2026-11-29 03:00:00,000 ERROR event=worker_lost\r\x1b[2J\x7f\x85\u2028\u202eé "=\\'

    try:
        raise ValueError(evil)
    except ValueError as error:
        events.error("job_failed", evil, error=evil, exception=error)
        events.warning("attempt_failed", traceback=f"Traceback\n{evil}")
    with suppress(ZeroDivisionError):
        raise ZeroDivisionError(evil)

    lines = written.getvalue().removesuffix("\n").split("\n")
    assert all(line.isprintable() for line in lines)
    first, *below = [line for line in lines if not line.startswith("  ")]
    assert [line.split(" ")[3] for line in (first, *below)] == [
        "event=job_failed", "event=attempt_failed",
    ]  # fmt: skip
    found = re.fullmatch(r'.* error=(".*") msg=(".*")', first)
    assert found
    assert [json.loads(value) for value in found.groups()] == [evil, evil]


def test_the_time_of_a_line_is_its_own() -> None:
    formatter = events.LineFormatter()
    moments = [1_000_000_000.25, 1_000_000_000.5, 1_000_000_061.0]
    records = [
        logging.makeLogRecord({"created": at, "msecs": at % 1 * 1_000, "levelname": "INFO"})
        for at in moments
    ]

    seconds = [formatter.format(record).split(" ")[1][6:] for record in records]

    assert seconds == ["40,250", "40,500", "41,000"]


def test_lines_of_a_block_are_one_write(written: Writes) -> None:
    with events.together():
        for number in range(3):
            events.warning("attempt_failed", job_id=number)
        assert written.getvalue() == ""

    assert [shown(part) for part in written.parts] == [
        [f"event=attempt_failed job_id={number}" for number in range(3)]
    ]


def test_each_record_of_a_block_has_its_own_fields(caplog: pytest.LogCaptureFixture) -> None:
    def note(**fields: Any) -> None:
        events.warning("attempt_failed", "why not", **fields)

    with events.together():
        note(job_id=1, job_key="first", traceback="Traceback of 1")
        note(job_id=2, exception=ValueError("2"))
        note(job_id=3)

    first, second, third = caplog.records
    assert (first.__dict__["job_id"], first.__dict__["job_key"]) == (1, "first")
    assert (second.__dict__["job_id"], "job_key" in second.__dict__) == (2, False)
    assert [record.exc_text for record in caplog.records][::2] == ["  Traceback of 1", None]
    assert second.exc_info is not None
    assert third.exc_info is None
    assert all(r.getMessage().endswith(' msg="why not"') for r in caplog.records)
    assert {r.funcName for r in caplog.records} == {"note"}


def test_a_block_that_raises_writes_its_lines(written: Writes) -> None:
    with suppress(ZeroDivisionError), events.together():
        events.warning("before", number=1)
        raise ZeroDivisionError

    events.warning("after", number=2)
    assert shown(written.getvalue()) == ["event=before number=1", "event=after number=2"]


def test_a_closed_stream_stops_nobody(written: Writes) -> None:
    written.close()
    with events.together():
        events.warning("unread")


def test_a_traceback_that_is_known_is_not_made_again(written: Writes) -> None:
    events.error("job_failed", exception=ValueError("x"), traceback="Traceback: as it was\n")

    assert written.getvalue().splitlines()[1:] == ["  Traceback: as it was"]
