"""W3d: workers far from their database."""

from __future__ import annotations

import random
from contextlib import closing
from typing import TYPE_CHECKING, Any

from django.db import connection

import hipq_django as hipq
from benchmarks.measuring.measurements import Drain, WrongResultError
from benchmarks.measuring.postgres import analyze
from benchmarks.measuring.workers import running
from chaos.proxy import Network, Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.hipq.runner import HipqRunner
    from benchmarks.measuring.runner import Figures

LIMITED, BY_KEY = "throttled", "tenants"


def measure(runner: HipqRunner, sizes: dict[str, Any]) -> Figures:
    """Drain a plain queue, a limited one and one of many tenants, each through slow connections."""
    network = Network(random.Random(1))
    network.latency = (sizes["seconds_each_way"],) * 2
    with closing(Proxy(_socket(), network)) as proxy:
        address = f"postgres://postgres@127.0.0.1:{proxy.port}/{connection.settings_dict['NAME']}"
        for name, queue in (("", "default"), ("_limited", LIMITED), ("_many_keys", BY_KEY)):
            runner.enqueue_new(_jobs(queue, sizes["jobs"]))
            analyze()
            drain = Drain.expected(sizes["jobs"], sizes["workers"])
            command = runner.worker(None, queue)
            with running(command, sizes["workers"], {"DATABASE_URL": address}) as workers:
                yield f"jobs_per_second{name}", drain.jobs_per_second(runner, workers)


def _jobs(queue: str, number: int) -> Iterator[hipq.NewJob]:
    for n in range(number):
        data = {"kind": "noop", "number": n, "tenant": n % 100}
        yield hipq.NewJob("work", data, queue=queue)


def _socket() -> str:
    """Return the path of the server's socket; raise `WrongResultError` where it has none."""
    params = connection.get_connection_params()
    if not str(params.get("host")).startswith("/"):
        raise WrongResultError("the server is reached by TCP; without DATABASE_URL it has a socket")
    return f"{params['host']}/.s.PGSQL.{params.get('port') or 5432}"
