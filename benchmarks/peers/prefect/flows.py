"""The flow; as a program, a worker that runs as many flows as are left for it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from prefect import flow, task

from benchmarks.measuring.handlers import folder, handle
from benchmarks.measuring.tally import Cells

if TYPE_CHECKING:
    from pathlib import Path

STEPS = 3
AT_ONCE = 8
POLL_SECONDS = 0.01


class Waiting:
    """How many flows are to be begun, shared by the runner and all workers."""

    def __init__(self, where: Path) -> None:
        self._file = Cells(where / "waiting", 2)

    def add(self, number: int) -> None:
        """Let so many more be begun."""
        self._file.lock()
        self._file.cells[0] += number
        self._file.cells[1] += number
        self._file.unlock()

    def ever(self) -> int:
        """Return how many were ever added."""
        return self._file.cells[1]

    def take(self) -> bool:
        """Take one, if there is one."""
        self._file.lock()
        found = self._file.cells[0] > 0
        if found:
            self._file.cells[0] -= 1
        self._file.unlock()
        return found


@task
async def step(kind: str, number: int) -> None:
    """Do one step."""
    handle(kind, number)


@flow
async def pipeline(number: int) -> None:
    """Do three steps, one after the other."""
    for _ in range(STEPS):
        await step("noop", number)


async def work() -> None:
    """Run flows, several at a time, until the process is ended."""
    waiting = Waiting(folder())
    await asyncio.gather(*[_lane(waiting) for _ in range(AT_ONCE)])


async def _lane(waiting: Waiting) -> None:
    number = 0
    while True:
        if waiting.take():
            await pipeline(number)
            number += 1
        else:
            await asyncio.sleep(POLL_SECONDS)


if __name__ == "__main__":
    asyncio.run(work())
