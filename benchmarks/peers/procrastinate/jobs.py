"""The application."""

import os

import procrastinate

from benchmarks.measuring.handlers import handle_async

connector = procrastinate.PsycopgConnector(
    conninfo=os.environ["DATABASE_URL"], min_size=1, max_size=10
)
app = procrastinate.App(connector=connector)


@app.task(name="handle")
async def handle(kind: str, number: int) -> None:
    """Do one job."""
    await handle_async(kind, number)


@app.task(name="thrice", retry=2)
async def thrice(kind: str, number: int) -> None:
    """Fail, and be tried twice more at once."""
    await handle_async(kind, number)
