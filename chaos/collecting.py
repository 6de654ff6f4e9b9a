"""Collects the evidence of a cell from its ledger, its database and its workers' log."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from django.db import connection

from chaos.evidence import AnswerRow, Evidence, JobRow, TimeoutRow
from chaos.ledger import Reader, now
from chaos.run import LEDGER, LOG
from hipq_django.models import Answer, Attempt, Job, Worker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from chaos.evidence import Crew
    from chaos.run import Run
    from chaos.sampling import Samples

BEATS_FRESH = 2
"""A heart that did not miss two beats is taken to beat."""
BULKY = "bulky"

TRACEBACK = re.compile(r"^Traceback \(most recent call last\):$")
RAISED = re.compile(r"^([A-Za-z_][\w.]*)(?::|$)")
LINKS = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)
EXPECTED = (
    # What the jobs' code raises, and the database.
    "chaos.project.jobs.",
    "AttributeError: 'BadSnooze'",
    "hipq_django.exceptions.ResultError: the result of 'bulky'",
    # How jobs ended without an exception, as the log says it.
    "hipq_django.exceptions.ErrorAnswer",
    "hipq_django.exceptions.JobTimeout",
    "hipq_django.exceptions.WorkerLost",
    "django.db.",
    "psycopg.",
    "sqlite3.",
    "KeyboardInterrupt",
    "SystemExit",
)


def collected(run: Run, samples: Samples, crew: Crew) -> Evidence:
    """Return all that is known of a cell whose workers have ended."""
    events = Reader(run.folder / LEDGER).read()
    return Evidence(
        events=sorted(events, key=lambda event: event.at),
        jobs=_jobs(),
        timeouts=_timeouts(),
        answers=_answers(),
        receipts=_receipts(),
        samples=samples.taken,
        above=samples.above,
        crew=crew,
        logged=list(unexpected(run.folder / LOG)),
        bounds=run.cell.bounds,
    )


def beating() -> int:
    """Return how many workers have a live row and a fresh heartbeat."""
    workers = Worker.objects.filter(state=Worker.State.RUNNING)
    return sum(
        datetime.now(UTC) - worker.heartbeat_time
        < timedelta(seconds=BEATS_FRESH * worker.heartbeat_seconds)
        for worker in workers
    )


def wall_time(at: float) -> datetime:
    """Return the time of the calendar at a moment of the ledger."""
    return datetime.fromtimestamp(time.time() - now() + at, UTC)


def _ledger_time(moment: datetime) -> float:
    return now() - (time.time() - moment.timestamp())


def _jobs() -> list[JobRow]:
    rows = Job.objects.exclude(job_type__name=BULKY).order_by("pk")
    found = [
        JobRow(job.job_data["key"], job.state, job.outcome, job.attempt, job.result)
        for job in rows.iterator()
    ]
    bulky = Job.objects.filter(job_type__name=BULKY).defer("result")
    found += [JobRow(job.job_data["key"], job.state, job.outcome, job.attempt) for job in bulky]
    return found


def _timeouts() -> list[TimeoutRow]:
    rows = Attempt.objects.filter(kind=Attempt.Kind.TIMED_OUT).select_related("job")
    return [
        TimeoutRow(row.job.job_data["key"], row.attempt, _ledger_time(row.end_time)) for row in rows
    ]


def _answers() -> list[AnswerRow]:
    return [
        AnswerRow(row.job_key, row.message_id, row.kind, row.status, row.payload)
        for row in Answer.objects.all()
    ]


def _receipts() -> frozenset[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT name FROM chaos_receipt")
        return frozenset(name for (name,) in cursor.fetchall())


def unexpected(log: Path) -> Iterator[str]:
    """Return the last lines of tracebacks that neither the jobs nor the database explain.

    Of exceptions that followed from each other, the last one counts.
    """
    found: list[str] = []
    inside = False
    for written in log.read_text(errors="replace").splitlines():
        line = written.removeprefix("  ")  # below an event a traceback is indented
        if TRACEBACK.match(line):
            inside = True
        elif inside and RAISED.match(line):
            inside = False
            found.append(line)
        elif line in LINKS:
            found.pop()
    yield from (line for line in found if not line.startswith(EXPECTED))
