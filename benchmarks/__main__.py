"""A first look at speed: bulk enqueue, drain with one worker process, latency of an idle worker.

Prints one line of JSON for each figure. The database is that of `DATABASE_URL`, or an embedded
PostgreSQL that is started for the measurement. Figures are of this machine, with the database on
the same cores.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

JOBS = 20_000
ROUNDS = 3
LATENCY_JOBS = 200
LATENCY_PAUSE_SECONDS = 0.1
LIMIT = 10
LIMITED_JOBS = 1_000
LIMITED_SECONDS = 0.25
FACTORS = (1, 2, 3, 1, 2)


def main() -> None:
    """Measure and print."""
    with ExitStack() as stack:
        if "DATABASE_URL" not in os.environ:
            from tests.postgres import temporary_server

            os.environ["DATABASE_URL"] = stack.enter_context(temporary_server()).url("bench")
        os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.settings"
        set_up()
        say("machine", cores=os.cpu_count(), python=platform.python_version(), **versions())
        rounds = [measure_throughput() for _ in range(ROUNDS)]
        say("enqueue_many jobs/s", **spread([enqueued for enqueued, _ in rounds]))
        say("drain jobs/s, one worker process", **spread([drained for _, drained in rounds]))
        say("idle latency ms", **measure_latency())
        say("queue at its limit, share of the time", **measure_limit())


def set_up() -> None:
    """Prepare Django and an empty database."""
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)
    from hipq_django.models import Job

    Job.objects.all().delete()


def measure_throughput() -> tuple[float, float]:
    """Return jobs per second of one bulk enqueue and of one worker that drains it."""
    import hipq_django as hipq
    from hipq_django.models import Job

    new = [hipq.NewJob("noop", {"number": number}) for number in range(JOBS)]
    began = time.perf_counter()
    hipq.enqueue_many(new)
    enqueued = JOBS / (time.perf_counter() - began)
    subprocess.run([*worker(), "--until-idle"], check=True)
    final = Job.objects.filter(job_type__name="noop").order_by("update_time")
    ends = list(final.values_list("update_time", flat=True))
    assert len(ends) == JOBS, f"{len(ends)} of {JOBS} jobs are there"
    drained = JOBS / (ends[-1] - ends[0]).total_seconds()
    final.delete()
    return enqueued, drained


def measure_latency() -> dict[str, float]:
    """Return percentiles of the time from the enqueue's commit to the handler, in ms."""
    import hipq_django as hipq
    from hipq_django.models import Job

    process = subprocess.Popen([*worker(), "latency"])
    try:
        await_worker()
        committed: dict[int, float] = {}
        for _ in range(LATENCY_JOBS):
            job = hipq.enqueue("stamp", queue="latency")
            committed[job.pk] = time.time()
            time.sleep(LATENCY_PAUSE_SECONDS)
        while Job.objects.live().filter(queue__name="latency").exists():
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()
    rows = Job.objects.filter(pk__in=committed).values_list("pk", "result")
    delays = sorted((started - committed[pk]) * 1_000 for pk, started in rows)
    return {f"p{p}": round(delays[int(len(delays) * p / 100) - 1], 1) for p in (50, 95, 99)}


def measure_limit() -> dict[str, float]:
    """Return for which share of the time a limited queue with a backlog was full.

    Four worker processes, limit 10, 1,000 jobs of factors 1 to 3 in strict order: full means that
    the next job did not fit. `most` is the greatest sum of factors that was ever in hand.
    """
    import hipq_django as hipq
    from hipq_django.models import Job, Queue

    queue = Queue.objects.update_or_create(name="limited", defaults={"throttle_limit": LIMIT})[0]
    with tempfile.NamedTemporaryFile() as notes:
        hipq.enqueue_many(
            hipq.NewJob(
                "weighed",
                {"notes": notes.name, "seconds": LIMITED_SECONDS},
                throttle_factor=FACTORS[number % len(FACTORS)],
            )
            for number in range(LIMITED_JOBS)
        )
        command = [*worker(), "limited", "--until-idle"]
        for process in [subprocess.Popen(command) for _ in range(4)]:
            process.wait()
        lines = Path(notes.name).read_text().splitlines()
        spans = [tuple(map(float, line.split())) for line in lines]
    Job.objects.filter(queue=queue).delete()
    return {"share": round(full_share(spans), 3), "most": most(spans), "limit": LIMIT}


def full_share(spans: list[tuple[float, ...]]) -> float:
    """Return the share of the time, while jobs were waiting, in which the next did not fit."""
    starts = sorted((began, factor) for began, _, factor in spans)
    full = total = 0.0
    for (began, until), load in loads(spans):
        waiting = [factor for start, factor in starts if start > began]
        if not waiting:
            break
        total += until - began
        full += (until - began) * (load + waiting[0] > LIMIT)
    return full / total


def most(spans: list[tuple[float, ...]]) -> float:
    """Return the greatest load."""
    return max(load for _, load in loads(spans))


def loads(spans: list[tuple[float, ...]]) -> list[tuple[tuple[float, float], float]]:
    """Return the stretches of time between events, each with the sum of the factors in hand."""
    events = sorted([(b, f) for b, _, f in spans] + [(e, -f) for _, e, f in spans])
    load, history = 0.0, []
    for (at, change), (until, _) in pairwise(events):
        load += change
        history.append(((at, until), load))
    return history


def await_worker() -> None:
    """Wait until a worker has registered."""
    from hipq_django.models import Worker

    while not Worker.objects.filter(state=Worker.State.RUNNING).exists():
        time.sleep(0.05)


def worker() -> list[str]:
    """Return the command of a worker that logs warnings only."""
    return [sys.executable, "-m", "django", "hipq_worker", "-v0", "--no-reload"]


def spread(figures: list[float]) -> dict[str, int]:
    """Return the median and the extremes."""
    return {
        "median": round(statistics.median(figures)),
        "min": round(min(figures)),
        "max": round(max(figures)),
    }


def versions() -> dict[str, str]:
    """Return the versions of what takes part."""
    import django
    from django.db import connection

    connection.ensure_connection()
    database = connection.vendor
    if database == "postgresql":
        database = f"PostgreSQL {connection.pg_version // 10_000}"  # type: ignore[attr-defined]
    return {"django": django.get_version(), "database": database}


def say(what: str, **figures: object) -> None:
    """Print one line."""
    print(json.dumps({"what": what, **figures}))


if __name__ == "__main__":
    main()
