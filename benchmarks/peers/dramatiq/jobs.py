"""The broker and its actor."""

import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks.measuring import handlers

broker = RedisBroker(url=os.environ["REDIS_URL"])
dramatiq.set_broker(broker)


@dramatiq.actor
def handle(kind: str, number: int) -> None:
    """Do one job."""
    handlers.handle(kind, number)
