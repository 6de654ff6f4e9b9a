"""The application with a task that is due each second."""

from benchmarks.measuring.handlers import handle
from benchmarks.measuring.tally import Stamps
from benchmarks.peers.procrastinate.jobs import app

__all__ = ["app"]


@app.periodic(cron="* * * * * *")
@app.task(name="tick")
async def tick(timestamp: int) -> None:
    """Write down when the job of a second began."""
    handle("stamp", timestamp % Stamps.NUMBERS)
