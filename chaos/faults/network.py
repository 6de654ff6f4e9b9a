"""Faults of the network between the project and PostgreSQL."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chaos.stage import Stage


def cut(stage: Stage) -> None:
    """Close all connections of all workers, three times in two seconds."""
    for _ in range(3):
        stage.proxy.cut()
        time.sleep(stage.chance.uniform(0.3, 0.9))


def silence(stage: Stage) -> None:
    """Let all connections of all workers go silent for good; half of the time new ones too,
    for some seconds.
    """
    network = stage.proxy.network
    network.is_silent = stage.chance.random() < 0.5
    stage.proxy.silence()
    time.sleep(stage.chance.uniform(1, 3))
    stage.proxy.silence()
    network.heal()
    time.sleep(stage.silence)


def slow_down(stage: Stage) -> None:
    """Let each piece of data take 0.2 to 0.4 seconds, each way."""
    stage.proxy.network.latency = (0.2, 0.4)
    time.sleep(stage.chance.uniform(6, 10))
    stage.proxy.network.heal()


def lose_replies(stage: Stage) -> None:
    """Cut connections at commits: some behind the server's back, some before it hears of them."""
    network = stage.proxy.network
    network.lose_commits, network.lose_requests = 0.1, 0.05
    time.sleep(stage.chance.uniform(2, 4))
    network.heal()


def tear(stage: Stage) -> None:
    """Break connections off in the middle of a message."""
    stage.proxy.network.tear = 0.03
    time.sleep(stage.chance.uniform(2, 4))
    stage.proxy.network.heal()
