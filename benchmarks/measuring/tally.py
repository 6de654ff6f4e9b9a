"""What handlers leave behind: counts and moments, in files that all processes map into memory.

Counting costs well under a microsecond: no system call, no lock and no database on the way.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import threading
import time
from pathlib import Path

CELL_BYTES = 8
THREADS = 65_536
"""How many threads can count in one run, one after the other; the file is sparse."""


class Cells:
    """A file of 64-bit numbers, all 0 at first, shared by all who open it."""

    def __init__(self, path: Path, number: int) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        os.ftruncate(self._descriptor, number * CELL_BYTES)
        self.cells = memoryview(mmap.mmap(self._descriptor, number * CELL_BYTES)).cast("Q")

    def lock(self) -> None:
        """Wait until no other process or thread has the lock, and take it."""
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)

    def unlock(self) -> None:
        """Give the lock back."""
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)


class Tally:
    """How many jobs were handled. Each thread has two cells of its own: count and session.

    A worker is started in a session of its own, so the session says which worker it was, also
    where a worker has child processes.
    """

    def __init__(self, folder: Path) -> None:
        self._file = Cells(folder / "tally", 1 + 2 * THREADS)
        self._cells = self._file.cells
        self._taking = threading.Lock()
        self._mine = threading.local()
        # A child has the parent's memory, but must not count in the parent's cells.
        os.register_at_fork(after_in_child=self._begin_anew)

    def count(self) -> None:
        """Count one job."""
        try:
            cell = self._mine.cell
        except AttributeError:
            cell = self._mine.cell = self._take_cells()
        self._cells[cell] += 1

    def total(self) -> int:
        """Return how many jobs were counted."""
        return sum(self._cells[1 : 1 + 2 * self._cells[0] : 2])

    def workers(self) -> int:
        """Return how many workers have counted a job."""
        used = range(1, 1 + 2 * self._cells[0], 2)
        return len({self._cells[cell + 1] for cell in used if self._cells[cell]})

    def _take_cells(self) -> int:
        with self._taking:
            self._file.lock()
            taken = self._cells[0]
            self._cells[1 + 2 * taken + 1] = os.getsid(0)
            self._cells[0] = taken + 1
            self._file.unlock()
        return 1 + 2 * taken

    def _begin_anew(self) -> None:
        self._taking = threading.Lock()
        self._mine = threading.local()


class Stamps:
    """When the handler of each numbered job began, on the clock of `time.monotonic_ns`."""

    NUMBERS = 1_000_000

    def __init__(self, folder: Path) -> None:
        self._cells = Cells(folder / "stamps", self.NUMBERS).cells

    def stamp(self, number: int) -> None:
        """Write the present moment down."""
        self._cells[number] = time.monotonic_ns()

    def moment(self, number: int) -> int:
        """Return the moment in ns, 0 where the job has not begun."""
        return self._cells[number]
