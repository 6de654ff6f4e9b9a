import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

import hipq_django as hipq
from hipq_django.models import Job
from tests.kafka import KafkaCluster, kafka_cluster
from tests.processes.forked import READ_EARLY, RESTART, ForkedProcess

DEADLINE_SECONDS = 120.0
"""How long a test waits for what should take much less, on a machine that has other work."""

LOOK_SECONDS = 0.02

ON_SQLITE_TOO = {"test_crashes.py", "test_everyday.py", "test_flow.py", "test_signals.py"}
"""Files about crashes, signals and wake-up, in which workers do on SQLite what differs there."""

Process = ForkedProcess | subprocess.Popen[bytes]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let what starts workers run on PostgreSQL in the commit suite, and little of it on SQLite."""
    for item in items:
        if "workers" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.conformance)
            if connection.vendor == "sqlite" and item.path.name not in ON_SQLITE_TOO:
                item.add_marker(pytest.mark.nightly)


def nightly(*values: object) -> Any:
    """Return a case of a test that is left to the night."""
    return pytest.param(*values, marks=pytest.mark.nightly)


def eventually(
    condition: Callable[[], object], what: str, seconds: float = DEADLINE_SECONDS
) -> None:
    """Wait until the condition holds; fail with `what` if it never does."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain until {what}"
        time.sleep(LOOK_SECONDS)


def hold(tmp_path: Path, name: str = "", **options: Any) -> tuple[Job, Path, Path]:
    """Enqueue a job that says when it runs, and ends when it may; return its files too."""
    notes, gate = tmp_path / f"notes{name}", tmp_path / f"gate{name}"
    job = hipq.enqueue("held", {"notes": str(notes), "gate": str(gate)}, **options)
    return job, notes, gate


def begun(notes: Path) -> int:
    """Return how many handlers noted that they run; the file is there before its first line."""
    return notes.read_text().count("begin") if notes.exists() else 0


@dataclass
class Workers:
    """Starts real worker processes and ends those that a test leaves running."""

    environment: dict[str, str]
    log: Path
    started: list[Process] = field(default_factory=list)

    def start(self, *arguments: str, **environment: str) -> Process:
        """Start `hipq_worker` with these arguments; its log goes to the test's file."""
        return self.start_command("hipq_worker", "--no-reload", *arguments, **environment)

    def consume(self, source: str, **environment: str) -> Process:
        """Start `hipq_consume` for a source."""
        return self.start_command("hipq_consume", source, **environment)

    def start_command(self, *command: str, **environment: str) -> Process:
        """Start one of the commands; with its children it is a process group."""
        if READ_EARLY & environment.keys():
            return self.execute(*command, **environment)
        return self._note(ForkedProcess(command, self.environment | environment, self.log))

    def execute(self, *command: str, **environment: str) -> Process:
        """Start one of the commands as a shell does, in an interpreter of its own."""
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "django", *command],
                env=self.environment | environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self._note(process)

    def _note(self, process: Process) -> Process:
        self.started.append(process)
        return process

    def run(self, *arguments: str, seconds: float = DEADLINE_SECONDS, **environment: str) -> int:
        """Start a worker, wait for its end and return its exit code."""
        return self.start(*arguments, **environment).wait(timeout=seconds)

    def end(self) -> None:
        """Kill what still runs, with children that are left: the tables are the next test's."""
        for process in self.started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def workers(process_environment: dict[str, str], tmp_path: Path) -> Iterator[Workers]:
    """Real worker processes on the test's database; 1.5 s of silence count as the loss of one."""
    environment = process_environment | {"HIPQ_TEST_HEARTBEAT_SECONDS": "0.5"}
    workers = Workers(environment, tmp_path / "workers.log")
    yield workers
    workers.end()
    print(workers.log.read_text()[-20_000:] if workers.log.exists() else "")  # noqa: T201 - shown where a test fails


@pytest.fixture
def no_silence(workers: Workers) -> None:
    """However long the machine keeps a worker from its heartbeat, it is not declared lost."""
    workers.environment["HIPQ_TEST_HEARTBEAT_SECONDS"] = "600"


@pytest.fixture
def no_pause(workers: Workers) -> None:
    """A supervisor replaces a dead process at once, not after a second."""
    workers.environment["HIPQ_TEST_CONSTANTS"] = json.dumps({RESTART: 0.05})


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaCluster]:
    """Three brokers; each test has topics and groups of its own."""
    with kafka_cluster(3) as cluster:
        yield cluster
