"""W28: what four shards cost beside one database of the same server, in turn."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from statistics import mean
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.management import call_command
from django.db import connections, transaction
from django.test import override_settings

import hipq_django as hipq
from benchmarks.hipq.limits_at_work import loads, read_spans
from benchmarks.hipq.settings import LIMIT, SHARDS
from benchmarks.measuring.handlers import folder, tally
from benchmarks.measuring.measurements import POLL_SECONDS, await_count
from benchmarks.measuring.workers import cpu_seconds, running
from hipq_django.models import Job

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.hipq.runner import HipqRunner
    from benchmarks.measuring.runner import Figures

WARM_UP = 40
"""So many jobs open the connections of all shards."""

SPREAD_SECONDS = 2
"""In which a limit that is somewhere else may come to where the jobs are."""


def measure(runner: HipqRunner, sizes: dict[str, Any]) -> Figures:
    """Yield the ratios of what four shards need and what one database needs, and an idle worker."""
    _make_shards()
    used: dict[bool, list[float]] = {False: [], True: []}
    for is_sharded in (False, True, True, False):
        with _instance(is_sharded=is_sharded):
            used[is_sharded].append(_server_us(runner, sizes["drained"], is_sharded=is_sharded))
    yield "server_us", mean(used[True])
    yield "server_share", mean(used[True]) / mean(used[False])
    yield "enqueue_share", _enqueue_share(sizes["turns"], sizes["jobs"])
    rooms = {}
    for is_sharded in (False, True):
        with _instance(is_sharded=is_sharded):
            rooms[is_sharded] = _used_room(runner, sizes["limited"], is_sharded=is_sharded)
    yield "used_room", rooms[True]
    yield "room_share", rooms[True] / rooms[False]
    with _instance(is_sharded=True):
        yield "idle_core_percent", _idle(runner, sizes["settle_seconds"], sizes["idle_seconds"])


def _make_shards() -> None:
    """Copy the database, which is empty, for each shard."""
    connections.close_all()
    template = settings.DATABASES["default"]["NAME"]
    with connections["default"]._nodb_cursor() as cursor:
        for alias in SHARDS:
            name = settings.DATABASES[alias]["NAME"]
            cursor.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
            cursor.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
    with _instance(is_sharded=True):
        call_command("hipq_shards", "add", verbosity=0)


@contextmanager
def _instance(*, is_sharded: bool) -> Iterator[None]:
    """Let the instance have shards or one database, here and in workers that are started."""
    if not is_sharded:
        yield
        return
    os.environ["BENCH_SHARDED"] = "yes"
    try:
        with override_settings(HIPQ={"default": {**settings.HIPQ["default"], "SHARDS": SHARDS}}):
            yield
    finally:
        del os.environ["BENCH_SHARDED"]
        connections.close_all()


def _server_us(runner: HipqRunner, jobs: int, *, is_sharded: bool) -> float:
    """Return the server's time for a job, by four workers: in one database, or one in each."""
    aliases = SHARDS if is_sharded else ["default"]
    new = (hipq.NewJob("work", {"kind": "noop", "number": number}) for number in range(jobs))
    hipq.enqueue_many(new, per_shard=True)
    before = tally().total()
    with running(runner.worker(), 1 if is_sharded else len(SHARDS)) as workers:
        await_count(workers, before + jobs)
        while any(Job.objects.using(alias).live().exists() for alias in aliases):
            time.sleep(10 * POLL_SECONDS)
        return 1e6 * cpu_seconds(_sessions(aliases)) / jobs


def _sessions(aliases: Sequence[str]) -> list[int]:
    """Return the processes of the server that work for others in these databases."""
    connections.close_all()
    names = [settings.DATABASES[alias]["NAME"] for alias in aliases]
    query = "SELECT pid FROM pg_stat_activity WHERE datname = ANY(%s) AND pid <> pg_backend_pid()"
    with connections["default"].cursor() as cursor:
        cursor.execute(query, [names])
        return [pid for (pid,) in cursor.fetchall()]


def _enqueue_share(turns: int, jobs: int) -> float:
    """Return the rate of enqueues with a shard key, of that of enqueues in one database."""
    took = {False: 0.0, True: 0.0}
    for turn in range(2 * turns):
        is_sharded = turn % 2 == 1
        with _instance(is_sharded=is_sharded):
            _enqueue(WARM_UP, is_sharded=is_sharded)
            began = time.perf_counter()
            _enqueue(jobs, is_sharded=is_sharded)
            took[is_sharded] += time.perf_counter() - began
    return took[False] / took[True]


def _enqueue(jobs: int, *, is_sharded: bool) -> None:
    for number in range(jobs):
        key = f"tenant-{number}" if is_sharded else None
        hipq.enqueue("work", {"kind": "noop", "number": number}, shard_key=key)


def _used_room(runner: HipqRunner, jobs: int, *, is_sharded: bool) -> float:
    """Return the share of the limit that jobs of a second use, all in one shard, from 2 s on."""
    alias = SHARDS[-1] if is_sharded else "default"
    notes, before = folder() / f"spans_{alias}", tally().total()
    new = hipq.NewJob("weighed", {"notes": str(notes), "seconds": 1}, queue="wide")
    with transaction.atomic(using=alias):
        hipq.enqueue_many([new] * jobs)
    connections.close_all()
    command = [*runner.worker(LIMIT, "wide"), *(["--shard", alias] if is_sharded else [])]
    with running(command) as workers:
        await_count(workers, before + jobs)
    spans = read_spans(notes)
    begun = [began for began, _, _ in spans]
    begin, end = min(begun) + SPREAD_SECONDS, max(begun)
    parts = (load * max(min(until, end) - max(at, begin), 0) for at, until, load in loads(spans))
    return sum(parts) / (LIMIT * (end - begin))


def _idle(runner: HipqRunner, settle_seconds: float, seconds: float) -> float:
    """Return the share of a core that a worker of one shard takes, with its server's part."""
    with running([*runner.worker(), "--shard", SHARDS[1]]) as workers:
        time.sleep(settle_seconds)
        pids = [*workers.pids(), *_sessions(SHARDS)]
        before = cpu_seconds(pids)
        time.sleep(seconds)
        return 100 * (cpu_seconds(pids) - before) / seconds
