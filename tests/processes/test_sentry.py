"""What Sentry's SDK, as it is installed by default, sends of the failures in a real worker."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import hipq_django as hipq
from hipq_django.models import Job
from tests.processes.conftest import DEADLINE_SECONDS, Process, Workers, eventually

pytestmark = pytest.mark.processes

RAISED = {
    "never": "DeclinedError",
    "fixed": "DeclinedError",
    "own_policy": "DeclinedError",
    "asks": "DeclinedError",
    "secret": "DeclinedError",
    "broken_policy": "LookupError",
    "asks_in_vain": "KeyError",
}
"""What each type of job raises."""

OTHERS = {
    "late": "JobTimeout",
    "also_late": "JobTimeout",
    "refused": "ErrorAnswer",
    "killer": "WorkerLost",
}
"""What stands for the failure where nothing was raised."""


class Sentry:
    """A worker's project uses Sentry."""

    def __init__(self, workers: Workers, file: Path) -> None:
        self._workers, self._file = workers, file
        self._environment = {
            "DJANGO_SETTINGS_MODULE": "tests.sentry_settings",
            "HIPQ_TEST_SENTRY_FILE": str(file),
        }

    def start(self) -> Process:
        """Start a worker."""
        return self._workers.start("heard", **self._environment)

    def run_until_final(self) -> None:
        """Run a worker until all jobs have ended."""
        worker = self.start()
        eventually(
            lambda: worker.poll() is not None or not Job.objects.live().exists(),
            "all jobs are final",
        )
        assert worker.poll() is None
        worker.terminate()
        worker.wait()

    @property
    def events(self) -> list[dict[str, Any]]:
        """What it got about jobs."""
        events = [json.loads(line) for line in self._file.read_text().splitlines()]
        return [event for event in events if "job_id" in event["extra"]]


@pytest.fixture
def sentry(workers: Workers, tmp_path: Path) -> Sentry:
    return Sentry(workers, tmp_path / "sentry")


def test_each_job_that_failed_is_one_event_with_its_exception(sentry: Sentry) -> None:
    hipq.enqueue("killer", queue="heard")
    assert sentry.start().wait(DEADLINE_SECONDS) == -signal.SIGKILL
    hipq.fail("refused", "k", {"code": 51})
    for kind in (*RAISED, *OTHERS.keys() - {"killer"}):
        hipq.enqueue(kind, queue="heard", job_key="k")

    sentry.run_until_final()

    assert Counter(e["extra"]["job_type"] for e in sentry.events) == dict.fromkeys(
        [*RAISED, *OTHERS], 1
    )
    last = {e["extra"]["job_type"]: e["exception"]["values"][-1] for e in sentry.events}
    assert {kind: value["type"] for kind, value in last.items()} == RAISED | OTHERS
    # What was decided about by code of the project, later, has its class and its text.
    at_once = {"never": "decline", "fixed": "decline", "secret": "decline"}
    for kind, function in at_once.items():
        place = last[kind]["stacktrace"]["frames"][-1]
        assert (place["function"], place["module"]) == (function, "tests.sentryapp.jobs")
    assert all(event["level"] == "error" for event in sentry.events)
    # Readable as it is, also where Sentry puts the arguments into the line itself.
    assert all("event=job_failed job_id=" in e["logentry"]["formatted"] for e in sentry.events)
    assert all("Fields object" not in str(event["logentry"]["params"]) for event in sentry.events)
    for kind in ("never", "asks"):
        raised = next(e for e in sentry.events if e["extra"]["job_type"] == kind)
        value = raised["exception"]["values"][0]
        assert (value["type"], value["module"]) == ("DeclinedError", "tests.sentryapp.jobs")
        assert value["value"].startswith("no funds (")
