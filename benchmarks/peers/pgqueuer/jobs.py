"""The application, and a worker of it: `python -m benchmarks.peers.pgqueuer.jobs 500 [limit]`.

The package's own command cannot be given a log level in this version.
"""

import asyncio
import json
import os
import signal
import sys
from typing import Any

import asyncpg
import uvloop
from pgqueuer import PgQueuer

from benchmarks.measuring.handlers import handle_async


async def create() -> PgQueuer:
    """Return the application, connected."""
    connection = await asyncpg.connect(os.environ["DATABASE_URL"])
    application = PgQueuer.from_asyncpg_connection(connection)

    @application.entrypoint("handle")
    async def handle(job: Any) -> None:
        await handle_async(*json.loads(job.payload))

    return application


async def work(batch_size: int, limit: int | None = None) -> None:
    """Work until stopped."""
    application = await create()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, application.shutdown.set)
    await application.run(batch_size=batch_size, max_concurrent_tasks=limit)


if __name__ == "__main__":
    uvloop.run(work(*(int(argument) for argument in sys.argv[1:])))
