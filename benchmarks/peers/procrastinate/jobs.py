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


@app.task(name="step")
async def step(number: int, left: int) -> None:
    """Do one step, and let the next one follow."""
    await handle_async("noop", number)
    if left:
        await step.defer_async(number=number, left=left - 1)


@app.task(name="link")
async def link(number: int, steps: int) -> None:
    """Stamp, and let the next one follow."""
    await handle_async("stamp", number)
    if number + 1 < steps:
        await link.defer_async(number=number + 1, steps=steps)


@app.task(name="thrice", retry=2)
async def thrice(kind: str, number: int) -> None:
    """Fail, and be tried twice more at once."""
    await handle_async(kind, number)
