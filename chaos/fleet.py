"""The worker processes, started and replaced as a service manager does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from chaos.ledger import Ledger

STOP_SECONDS = 20.0
"""How long a worker may take to end after the first SIGTERM, and again after the second one."""
ABORT_SECONDS = 5.0


@dataclass(frozen=True)
class Stopped:
    """How the workers ended that were told to."""

    died: int = 0
    """Processes that ended though nobody ended them."""
    killed: int = 0
    """Processes that did not end when they were told to, and had to be killed."""
    failed: int = 0
    """Processes that ended as told, but with an exit code other than 0."""


@dataclass
class Fleet:
    """The commands `hipq_worker` that run."""

    environment: Mapping[str, str]
    log: Path
    ledger: Ledger
    arguments: Sequence[str]
    clock: Path
    """The file that a worker on a machine of its own follows with its clock."""
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)
    died: int = 0
    killed: int = 0
    failed: int = 0

    def start_apart(self) -> None:
        """Start a worker on a machine of its own, whose clock can be set."""
        self.start(CHAOS_CLOCK=str(self.clock))

    def start(self, **environment: str) -> None:
        """Start one more worker."""
        command = [sys.executable, "-m", "django", "hipq_worker", "--no-reload", *self.arguments]
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                command,
                env={**self.environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.running.append(process)

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """Kill a worker, with what it started."""
        self._forget(process)
        self.ledger.write("killed", worker=process.pid)
        _kill(process)

    def suspend(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        """Stop a worker for a while, as a machine that sleeps."""
        process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.ledger.write("waking", worker=process.pid)
        process.send_signal(signal.SIGCONT)

    def stop_one(self, process: subprocess.Popen[bytes]) -> None:
        """Tell a worker to stop, and again if it does not; kill it if that is no use."""
        self._forget(process)
        _tell_to_stop(process)
        self._await_end(process)

    def count_dead(self) -> None:
        """Notice those that ended by themselves; nobody starts them again."""
        for process in list(self.running):
            if process.poll() is not None:
                self.died += 1
                self._forget(process)

    def stop(self) -> Stopped:
        """Tell all to stop, kill those that do not, and return how it went."""
        self.count_dead()
        for process in self.running:
            _tell_to_stop(process)
        for process in self.running:
            self._await_end(process)
        self.running.clear()
        return Stopped(self.died, self.killed, self.failed)

    def end(self) -> None:
        """Kill what is left, whatever state it is in."""
        for process in self.running:
            _kill(process)

    def of(self, pid: int) -> subprocess.Popen[bytes] | None:
        """Return the worker with this process id."""
        return next((process for process in self.running if process.pid == pid), None)

    def pids(self) -> list[int]:
        """Return the process ids of the workers, and of those that they started."""
        return [pid for process in self.running for pid in family(process.pid)]

    def _await_end(self, process: subprocess.Popen[bytes]) -> None:
        for _ in range(2):
            try:
                self.failed += process.wait(STOP_SECONDS) != 0
            except subprocess.TimeoutExpired:
                _tell_to_stop(process)
            else:
                return
        self.killed += 1
        _abort(process)
        _kill(process)

    def _forget(self, process: subprocess.Popen[bytes]) -> None:
        if process in self.running:
            self.running.remove(process)


def _tell_to_stop(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        process.terminate()


def _abort(process: subprocess.Popen[bytes]) -> None:
    """Let a process that hangs write into its log where each of its threads stands."""
    with suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(process.pid, signal.SIGABRT)
        process.wait(ABORT_SECONDS)


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def family(pid: int) -> list[int]:
    """Return a process and those that it started, where the system tells."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return [pid]
    return [pid, *(member for child in children for member in family(int(child)))]
