"""Workers of several shards keep one limit, and each shard gets what it can use of it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import partial
from itertools import accumulate
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connections, transaction
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.conf.instances import on_shard
from hipq_django.models import Job, Queue, ShardMap, Worker
from hipq_django.models.catalog import get_queue
from tests.processes.conftest import Workers, eventually, nightly
from tests.proxy import Proxy, proxy

pytestmark = [
    pytest.mark.processes,
    pytest.mark.postgres,
    pytest.mark.django_db(databases=["default", "other"], transaction=True),
]

SHARDS = ["default", "other"]
LIMIT = 6


@pytest.fixture
def bank(workers: Workers, settings: Settings) -> None:
    """A queue in two shards; the first has the whole limit."""
    queues = {"shared": {"THROTTLE_LIMIT": LIMIT}}
    settings.HIPQ = {"default": {"SHARDS": SHARDS, "QUEUES": queues}}
    workers.environment |= {
        "HIPQ_TEST_SHARDS": json.dumps(SHARDS),
        "HIPQ_TEST_QUEUES": json.dumps(queues),
    }
    for number, alias in enumerate(SHARDS):
        counts = {"number": number, "count": 2, "count_before": 2, "first_id": 0}
        ShardMap.objects.using(alias).create(instance="default", **counts)
        with on_shard("default", alias):
            get_queue("default", "shared")
        Queue.objects.using(alias).update(share=0 if number else LIMIT)


def enqueue(alias: str, notes: Path, jobs: int) -> None:
    with on_shard("default", alias), transaction.atomic(using=alias):
        data = {"notes": str(notes), "seconds": 0.2}
        hipq.enqueue_many(hipq.NewJob("timed", data) for _ in range(jobs))


def loads(notes: Path) -> list[tuple[float, int]]:
    """Return how many handlers ran at once, and since when, after each begin and end."""
    lines = [line.split() for line in notes.read_text().splitlines()]
    steps = sorted((float(moment), 1 if what == "begin" else -1) for moment, what, *_ in lines)
    moments = [moment for moment, _ in steps]
    return list(zip(moments, accumulate(step for _, step in steps), strict=True))


@pytest.fixture
def wire(workers: Workers) -> Iterator[Proxy]:
    """What lies between the workers and the second shard."""
    connections["other"].ensure_connection()
    info = connections["other"].connection.info
    with proxy(f"{info.host}/.s.PGSQL.{info.port}") as wire:
        url = f"postgres://{info.user}@127.0.0.1:{wire.port}/{info.dbname}"
        workers.environment["OTHER_DATABASE_URL"] = url
        yield wire


def is_idle(alias: str) -> bool:
    return not Job.objects.using(alias).live().exists()


@pytest.mark.parametrize("served", [nightly(SHARDS), ["other"]], ids=["both", "one has no worker"])
def test_a_shard_that_has_all_the_work_gets_the_whole_limit(
    bank: None, workers: Workers, tmp_path: Path, served: list[str]
) -> None:
    notes = tmp_path / "notes"
    for alias in served:
        workers.start("shared", "--shard", alias)
    enqueue("other", notes, 40)

    eventually(lambda: is_idle("other"), "all jobs have ended")

    found = loads(notes)
    began = found[0][0]
    assert max(load for _, load in found) == LIMIT
    assert min(moment for moment, load in found if load == LIMIT) < began + 2


def test_the_limit_is_kept_while_work_moves_between_shards(
    bank: None, workers: Workers, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    workers.start("shared")
    for alias in reversed(SHARDS):
        enqueue(alias, notes, 20)
        eventually(partial(is_idle, alias), f"the jobs of {alias} have ended")

    assert max(load for _, load in loads(notes)) == LIMIT
    log = workers.log.read_text()
    assert all(f"event=worker_started shard={alias} " in log for alias in SHARDS)


@pytest.mark.nightly
def test_workers_of_the_other_shards_start_while_one_is_away(
    bank: None, workers: Workers, tmp_path: Path
) -> None:
    workers.environment["OTHER_DATABASE_URL"] = "postgres://nobody@127.0.0.1:1/nothing"
    workers.start("shared")
    enqueue("default", tmp_path / "notes", 3)

    eventually(partial(is_idle, "default"), "the jobs of the shard that is there have ended")
    eventually(lambda: "event=process_died" in workers.log.read_text(), "the other one is missed")
    assert "shard=other" in workers.log.read_text()


@pytest.mark.nightly
def test_beside_a_shard_that_is_gone_the_others_use_their_shares_and_it_comes_back(
    bank: None,
    workers: Workers,
    wire: Proxy,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    notes = tmp_path / "notes"
    for alias in SHARDS:
        workers.start("shared", "--shard", alias)
    for alias in SHARDS:
        eventually(Worker.objects.using(alias).exists, f"the worker of {alias} is there")
    for alias in SHARDS:
        enqueue(alias, notes, 40)
    eventually(Job.objects.using("other").final().exists, "both work")

    wire.new = "refuse"
    wire.cut()
    eventually(partial(is_idle, "default"), "the jobs of the first shard have ended")
    time.sleep(60)
    assert not is_idle("other")
    wire.new = "pass"
    eventually(partial(is_idle, "other"), "the jobs of the second shard have ended")

    assert max(load for _, load in loads(notes)) <= LIMIT
    call_command("hipq_shards", "--json")
    assert json.loads(capsys.readouterr().out)["sums"]["shared"] == LIMIT
