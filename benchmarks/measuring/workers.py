"""The worker processes of a run."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measuring.handlers import folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

STOP_SECONDS = 10


class WorkerFailedError(Exception):
    """A worker process ended before its work was done."""


class Workers:
    """Worker processes that were started for a run."""

    def __init__(self, processes: Sequence[subprocess.Popen[bytes]]) -> None:
        self._processes = processes

    def check(self) -> None:
        """Raise `WorkerFailedError` if one of them has ended."""
        for process in self._processes:
            if process.poll() is not None:
                raise WorkerFailedError(f"a worker left with {process.returncode}: {last_words()}")

    def peak_memory_mb(self) -> float | None:
        """Return the peak memory of all of them and their children, None where /proc is not.

        The sum of the peak resident sizes; pages that processes share count for each.
        """
        return self._megabytes("VmHWM:")

    def memory_mb(self) -> float | None:
        """Return their memory now, counted as `peak_memory_mb` does."""
        return self._megabytes("VmRSS:")

    def pids(self) -> list[int]:
        """Return their process ids, with those of their children."""
        return [pid for process in self._processes for pid in _family(process.pid)]

    def _megabytes(self, line: str) -> float | None:
        if not Path("/proc/self/status").exists():
            return None
        return sum(_kilobytes(pid, line) for pid in self.pids()) / 1_024

    def stop(self) -> None:
        """Ask them to leave, and kill what does not."""
        for process in self._processes:
            _signal_group(process, signal.SIGTERM)
        until = time.monotonic() + STOP_SECONDS
        for process in self._processes:
            try:
                process.wait(max(until - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                _signal_group(process, signal.SIGKILL)
                process.wait()


@contextmanager
def running(
    command: Sequence[str], number: int = 1, environment: Mapping[str, str] | None = None
) -> Iterator[Workers]:
    """Start `number` processes with this command, and stop them when the context ends."""
    started: list[subprocess.Popen[bytes]] = []
    workers = Workers(started)
    try:
        with log_path().open("ab") as log:
            for _ in range(number):
                process = subprocess.Popen(
                    command,
                    env={**os.environ, **(environment or {})},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
                started.append(process)
        yield workers
    finally:
        workers.stop()


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return how long these processes have had a core so far, with a step of 10 ms each."""
    return sum(_ticks(pid) for pid in pids) / os.sysconf("SC_CLK_TCK")


def log_path() -> Path:
    """Return where the workers' output goes."""
    return folder() / "workers.log"


def last_words() -> str:
    """Return the end of the workers' output."""
    return log_path().read_text(errors="replace")[-1_500:].strip() or "no output"


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Signal a process, and its children too where it must die: they may not notice."""
    if process.poll() is not None:
        return
    if number is signal.SIGKILL:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)


def _family(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(member for child in children for member in _family(int(child)))]


def _kilobytes(pid: int, name: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(name))


def _ticks(pid: int) -> int:
    """Return utime and stime of proc(5), which stand behind the name of the program."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])
