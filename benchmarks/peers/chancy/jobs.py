"""The application, its job, and a worker of it: `python -m benchmarks.peers.chancy.jobs 1000`."""

import asyncio
import logging
import os
import sys

from chancy import Chancy, Queue, Worker

from benchmarks.measuring.handlers import handle_async

RESULTS_SECONDS = 0.1
"""How often results are written; each second, as shipped, a drain ends up to a second late."""
PATH = "benchmarks.peers.chancy.jobs.handle"


async def handle(*, kind: str, number: int) -> None:
    """Do one job."""
    await handle_async(kind, number)


def application() -> Chancy:
    """Return the application; its log would else have a line for each job."""
    log = logging.getLogger("chancy")
    log.setLevel(logging.WARNING)
    return Chancy(os.environ["DATABASE_URL"], log=log)


def queue(concurrency: int) -> Queue:
    """Return the queue as it is declared."""
    return Queue(
        "default", concurrency=concurrency, executor=Chancy.Executor.Async, eager_polling=True
    )


async def work(concurrency: int) -> None:
    """Work until stopped."""
    async with application() as chancy:
        await chancy.declare(queue(concurrency), upsert=True)
        worker = Worker(chancy)
        worker.send_outgoing_interval = RESULTS_SECONDS
        async with worker:
            await worker.wait_for_shutdown()


if __name__ == "__main__":
    asyncio.run(work(int(sys.argv[1])))
