"""The worker's application."""

import json
import os
from typing import Any

import asyncpg
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
