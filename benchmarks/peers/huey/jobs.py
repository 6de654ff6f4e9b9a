"""Huey on Redis where the run has one, else on a SQLite file in its folder."""

import os

from huey import RedisHuey, SqliteHuey

from benchmarks.measuring import handlers

if "REDIS_URL" in os.environ:
    huey = RedisHuey("bench", url=os.environ["REDIS_URL"])
else:
    huey = SqliteHuey("bench", filename=str(handlers.folder() / "huey.sqlite3"))


@huey.task()
def handle(kind: str, number: int) -> None:
    """Do one job."""
    handlers.handle(kind, number)


@huey.task(retries=2)
def thrice(kind: str, number: int) -> None:
    """Fail, and be tried twice more at once."""
    handlers.handle(kind, number)
