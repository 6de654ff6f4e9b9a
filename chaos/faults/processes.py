"""Faults of the workers' processes and machines."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from chaos import orders
from chaos.databases import session

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from random import Random

    from chaos.databases import Session
    from chaos.orders import Order
    from chaos.stage import Stage

ANY = "SELECT id, name FROM hipq_worker WHERE state = 'running' ORDER BY random() LIMIT 1"
GIVE_UP = "UPDATE hipq_worker SET state = 'lost' WHERE id = {row}"
BACK = "SELECT 1 FROM hipq_worker WHERE name = '{name}' AND id > {row}"
BUSY = """
SELECT w.name FROM hipq_job j JOIN hipq_worker w ON w.id = j.worker_id
WHERE j.state = 'running' GROUP BY w.name HAVING COUNT(*) >= 40 LIMIT 1
"""
STARTED = "SELECT 1 FROM hipq_worker WHERE name LIKE '%:{pid}' AND state = 'running'"
BUSY_WITHIN_SECONDS = 3.0
START_WITHIN_SECONDS = 30.0
LOOK_SECONDS = 0.005
STEPS = (7_200.0, -7_200.0, 90_000.0, -40.0, 40.0, 0.0)


def kill_a_worker(stage: Stage) -> None:
    """Kill a worker, and start another in its place."""
    stage.fleet.kill(stage.a_worker())
    stage.fleet.start()


def suspend_shortly(stage: Stage) -> None:
    """Stop a worker for a moment, for less than makes it lost."""
    stage.fleet.suspend(stage.a_worker(), stage.chance.uniform(0.2, stage.silence / 3))


def suspend_for_long(stage: Stage) -> None:
    """Stop a worker, with all hands full, until the others have given it up and done its work."""
    seconds = 2 * stage.silence + stage.chance.uniform(0, 3)
    placing = threading.Thread(target=place(orders.burst), args=[stage])
    placing.start()
    stage.fleet.suspend(_busiest(stage), seconds)
    placing.join()


def _busiest(stage: Stage) -> subprocess.Popen[bytes]:
    """Return a worker as soon as it has many jobs in flight; any of them if none ever has."""
    with session(stage.database) as asked:
        found = await_row(asked, BUSY, BUSY_WITHIN_SECONDS)
    return (stage.fleet.of(_pid_of(found[0])) if found else None) or stage.a_worker()


def _pid_of(worker: str) -> int:
    """Return the process id that the name of a worker ends with."""
    return int(worker.rpartition(":")[2])


def restart_in_turn(stage: Stage) -> None:
    """Start a new worker and, once it works, tell the oldest one to stop, as a deployment does."""
    oldest = stage.fleet.running[0]
    stage.fleet.start()
    newest = stage.fleet.running[-1].pid
    with session(stage.database) as asked:
        await_row(asked, STARTED.format(pid=newest), START_WITHIN_SECONDS)
    stage.fleet.stop_one(oldest)


def await_row(asked: Session, query: str, seconds: float) -> Any:
    """Wait until a query finds a row, and return that; None where the time is over."""
    until = time.monotonic() + seconds
    while not (found := asked.execute(query).fetchone()) and time.monotonic() < until:
        time.sleep(LOOK_SECONDS)
    return found


def give_up_a_living_worker(stage: Stage) -> None:
    """Mark a worker as lost that lives, as others do who could not see its beats.

    Wait until it goes on as a new worker; in the ledger stands from when to when it must not work.
    """
    with session(stage.database) as asked:
        row, name = asked.execute(ANY).fetchone()
        asked.execute(GIVE_UP.format(row=row))
        stage.ledger.write("given up", worker=_pid_of(name))
        await_row(asked, BACK.format(name=name, row=row), 2 * stage.silence)
        stage.ledger.write("back", worker=_pid_of(name))


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
