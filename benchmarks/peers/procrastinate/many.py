"""The application with many schedules, as many and when the runner says."""

import os

from benchmarks.measuring.handlers import handle_async
from benchmarks.peers.procrastinate.jobs import app

__all__ = ["app"]

_number, _, _cron = os.environ["BENCH_SCHEDULES"].partition(" ")


@app.task(name="made")
async def made(timestamp: int) -> None:
    """Do nothing."""
    await handle_async("noop", timestamp)


for _n in range(int(_number)):
    app.periodic(cron=_cron, periodic_id=str(_n))(made)
