"""Faults of the workers' processes and machines."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from chaos.databases import session

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from chaos.orders import Order
    from chaos.stage import Stage

GIVE_UP = """
UPDATE hipq_worker SET state = 'lost'
WHERE id = (SELECT id FROM hipq_worker WHERE state = 'running' ORDER BY random() LIMIT 1)
"""
STEPS = (7_200.0, -7_200.0, 90_000.0, -40.0, 40.0, 0.0)


def kill_a_worker(stage: Stage) -> None:
    """Kill a worker, and start another in its place."""
    stage.fleet.kill(stage.a_worker())
    stage.fleet.start()


def suspend_shortly(stage: Stage) -> None:
    """Stop a worker for a moment, for less than makes it lost."""
    stage.fleet.suspend(stage.a_worker(), stage.chance.uniform(0.2, stage.silence / 3))


def suspend_for_long(stage: Stage) -> None:
    """Stop a worker until the others have given it up and done its work."""
    stage.fleet.suspend(stage.a_worker(), stage.silence + stage.chance.uniform(2, 4))


def restart_in_turn(stage: Stage) -> None:
    """Start a new worker and tell the oldest one to stop, as a deployment does."""
    stage.fleet.replace(stage.fleet.running[0])


def give_up_a_living_worker(stage: Stage) -> None:
    """Mark a worker as lost that lives, as others do who could not see its beats."""
    stage.run(GIVE_UP)
    time.sleep(stage.chance.uniform(0.5, 1.5))


def step_the_clock(stage: Stage) -> None:
    """Set the clock of one worker's machine: by hours, by seconds, forward, back, or right."""
    step = str(stage.chance.choice(STEPS))
    stage.fleet.clock.write_text(step)
    time.sleep(stage.chance.uniform(0.5, 2) * stage.beat)


def write_from_outside(stage: Stage) -> None:
    """Hold SQLite's write lock for hundreds of milliseconds, five times, beside the workers."""
    with session(stage.database) as opened:
        for _ in range(5):
            opened.execute("BEGIN IMMEDIATE")
            time.sleep(stage.chance.uniform(0.2, 0.6))
            opened.execute("ROLLBACK")
            time.sleep(stage.chance.uniform(0.02, 0.1))


def place(make: Callable[[Random], list[Order]]) -> Callable[[Stage], None]:
    """Return the fault of enqueuing these jobs."""

    def enqueue(stage: Stage) -> None:
        stage.client.place_many(make(stage.chance))

    return enqueue
