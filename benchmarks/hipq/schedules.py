"""W22: many schedules that are due at the same moment, and many that are not."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import TYPE_CHECKING, Any

from django.db.models import Max

import hipq_django as hipq
from benchmarks.measuring.measurements import await_finished
from benchmarks.measuring.postgres import analyze
from benchmarks.measuring.workers import running
from hipq_django.conf.instances import get_instance
from hipq_django.models import Schedule
from hipq_django.schedules.firing import Firing

if TYPE_CHECKING:
    from benchmarks.hipq.runner import HipqRunner
    from benchmarks.measuring.runner import Figures

START_SECONDS = 3
"""How long after its workers were started the schedules are due."""


def measure(runner: HipqRunner, sizes: dict[str, Any]) -> Figures:
    """Yield how fast schedules that are due at once become jobs, and what a look costs."""
    for number in range(sizes["schedules"]):
        new = hipq.NewJob("work", {"kind": "noop", "number": number})
        hipq.schedule(f"schedule {number}", new, hipq.Every(hours=1))
    analyze()
    for workers in sizes["workers"]:
        yield f"schedules_per_second_{workers}", _fired_per_second(runner, sizes, workers)
    yield "look_ms", _look_ms(sizes["looks"])


def _fired_per_second(runner: HipqRunner, sizes: dict[str, Any], number: int) -> float:
    """Let all be due at one moment, some seconds after the workers have begun."""
    runner.ignore_existing()
    with running(runner.worker(), number) as workers:
        hipq.enqueue_many(
            hipq.NewJob("work", {"kind": "noop", "number": n}) for n in range(sizes["warm_up"])
        )
        await_finished(runner, workers)
        runner.ignore_existing()
        due = datetime.now(UTC) + timedelta(seconds=START_SECONDS)
        Schedule.objects.update(next_time=due)
        await_made(runner, workers, sizes["schedules"])
        last = runner.mine().aggregate(Max("create_time"))["create_time__max"]
        await_finished(runner, workers)
    return float(sizes["schedules"] / (last - due).total_seconds())


def await_made(runner: HipqRunner, workers: Any, number: int) -> None:
    """Wait until so many jobs were made."""
    while runner.mine().count() < number:
        workers.check()
        time.sleep(0.05)


def _look_ms(looks: int) -> float:
    """Return how long a look takes while none is due."""
    Schedule.objects.update(next_time=datetime.now(UTC) + timedelta(hours=1))
    analyze()
    firing, took = Firing(get_instance("default")), []
    for _ in range(looks):
        began = time.perf_counter()
        firing.run()
        took.append(time.perf_counter() - began)
    return 1000 * median(took)
