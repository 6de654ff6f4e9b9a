"""`hipq_shards`: shards are added, settled and shown."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connections, transaction
from django.db.models import Model
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.conf.instances import InstanceSettings, get_instance
from hipq_django.domain.sharding import Shard
from hipq_django.exceptions import ShardError
from hipq_django.maintenance import growing
from hipq_django.models import Job, JobType, Queue, ShardMap, Transfer
from hipq_django.monitoring import shards as monitored
from hipq_django.sharding.map import forget, map_of
from tests.factories import JobFactory

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.django_db(databases=["default", "other"], transaction=True),
]


def said(*arguments: str) -> str:
    out = StringIO()
    call_command("hipq_shards", *arguments, stdout=out)
    return out.getvalue()


def refused(*arguments: str) -> str:
    with pytest.raises(CommandError) as raised:
        said(*arguments)
    return str(raised.value)


def maps() -> list[tuple[int, int, int, int] | None]:
    fields = ("number", "count", "count_before", "first_id")
    return [
        ShardMap.objects.using(alias).values_list(*fields).first() for alias in ("default", "other")
    ]


def next_id(using: str, model: type[Model]) -> int:
    with connections[using].cursor() as cursor:
        table = model._meta.db_table
        cursor.execute("SELECT nextval(pg_get_serial_sequence(%s, 'id'))", [table])
        return int(cursor.fetchone()[0])


def test_a_database_becomes_shard_0_and_a_new_one_shard_1(sharded: InstanceSettings) -> None:
    last = hipq.enqueue("echo").pk
    Job.objects.all().delete()  # it is pruned; its id is not given again
    limited = Queue.objects.create(name="bank", throttle_limit=40)
    unlimited = Queue.objects.create(name="free", throttle_limit=0.5)

    printed = said("add")

    assert printed == "shard 0: default\nshard 1: other\n"
    [first, second] = maps()
    assert first
    assert second
    assert (first[:3], second[:3]) == ((0, 2, 2), (1, 2, 2))
    assert first[3] == second[3] >= last
    for model in (Job, Queue, ShardMap):
        for number, alias in enumerate(("default", "other")):
            ids = [next_id(alias, model) for _ in range(2)]
            assert [each % 64 for each in ids] == [number, number]
            assert first[3] < ids[0] == ids[1] - 64
    for queue, share in ((limited, 40), (unlimited, 0)):
        queue.refresh_from_db()
        assert queue.share == share
        assert Queue.objects.using("other").get(name=queue.name).share == 0
    assert hipq.shards() == [Shard(0, "default"), Shard(1, "other")]


def test_adding_again_changes_nothing(sharded: InstanceSettings) -> None:
    said("add")
    before, following = maps(), next_id("other", Job)
    Queue.objects.create(name="bank", throttle_limit=40, share=10)

    said("add")

    assert maps() == before
    assert next_id("other", Job) == following + 64
    assert Queue.objects.get(name="bank").share == 10


def test_an_add_that_was_cut_off_is_repeated(
    sharded: InstanceSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After shard 0, and after the new shard: the map is as before, until shard 0 says it."""
    hipq.enqueue("echo", job_key="k")
    for step in ("_join", "_write"):
        with monkeypatch.context() as patch:
            patch.setattr(growing, step, lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                growing.add(sharded)
        forget()
        assert hipq.shards() == [Shard(0, "default")]

    growing.add(sharded)

    assert [row and row[:3] for row in maps()] == [(0, 2, 1), (1, 2, 1)]
    assert len(hipq.shards()) == 2


def test_who_enqueues_meanwhile_gets_ids_that_name_their_shard(sharded: InstanceSettings) -> None:
    started = threading.Barrier(3)

    def enqueue() -> None:
        try:
            hipq.enqueue("echo")
            started.wait()
            for _ in range(30):
                hipq.enqueue("echo")
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as pool:
        enqueued = [pool.submit(enqueue) for _ in range(2)]
        started.wait()
        growing.add(sharded)
        for each in enqueued:
            each.result()

    hipq.enqueue("echo")
    known = map_of(sharded)
    found = [(shard, Job.objects.using(shard.alias).values_list("pk", flat=True))
             for shard in known.shards]  # fmt: skip
    assert sum(len(ids) for _, ids in found) == 63
    assert all(known.of_id(each) == shard for shard, ids in found for each in ids)


def test_a_new_shard_is_empty(sharded: InstanceSettings) -> None:
    queue = Queue.objects.using("other").create(name="bank")
    kind = JobType.objects.using("other").create(name="charge", queue=queue)
    Job.objects.using("other").create(queue=queue, job_type=kind)

    assert refused("add") == (
        "database 'other' has jobs of instance 'default' already; a new shard is empty."
    )
    assert maps()[1] is None


def test_another_instance_may_share_the_databases(
    sharded: InstanceSettings, settings: Settings
) -> None:
    said("add")
    before, following = maps(), [next_id(alias, Job) for alias in ("default", "other")]
    settings.HIPQ = settings.HIPQ | {"shop": {"SHARDS": ["default", "other"]}}

    said("add", "--instance", "shop")

    assert maps() == before
    rows = ShardMap.objects.filter(instance="shop").values_list("count", "first_id")
    assert [*rows] == [(2, before[0][3])]  # type: ignore[index]  # it was added
    assert [next_id(alias, Job) for alias in ("default", "other")] == [f + 64 for f in following]


def test_settling_waits_for_the_live_jobs_whose_keys_have_moved(sharded: InstanceSettings) -> None:
    keys: list[dict[str, Any]] = [
        {"shard_key": "tenant-1"},  # to shard 1
        {"shard_key": "tenant-7", "job_key": "order-1"},
        {"job_key": "tenant-2"},  # to shard 1
        {"job_key": "order-42"},
        {"job_key": "tenant-3", "schedule_id": 5},
        {},
    ]
    moved, _, other_moved, *_ = [JobFactory.create(**values) for values in keys]
    assert "Before, there were 1: run manage.py hipq_shards settle" in said("add")

    assert refused("settle") == "2 live jobs are still in their former shard."
    hipq.cancel(moved)
    hipq.cancel(other_moved)
    assert said("settle") == "shard 0: default\nshard 1: other\n"

    assert [row and row[:3] for row in maps()] == [(0, 2, 2), (1, 2, 2)]


def test_adding_waits_for_settling(
    sharded: InstanceSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests have two databases, so the third is made up."""
    row = ShardMap(instance="default", number=0, count=2, count_before=1, first_id=0)
    monkeypatch.setattr(growing, "answers", lambda _alias: True)
    monkeypatch.setattr(growing, "_stored", lambda _config: {"default": row, "other": None})

    with pytest.raises(ShardError) as raised:
        growing.add(replace(sharded, shards=("default", "other", "third")))

    assert str(raised.value) == (
        "instance 'default' still has jobs in their former shards: run manage.py hipq_shards "
        "settle first."
    )


def test_settling_asks_no_shard_that_is_not_added_yet(sharded: InstanceSettings) -> None:
    """Else each of `add` and `settle` would wait for the other."""
    JobFactory.create(job_key="order-42")
    said("add")

    growing.settle(replace(sharded, shards=("default", "other", "nowhere")))

    assert [row and row[:3] for row in maps()] == [(0, 2, 2), (1, 2, 2)]


def test_a_lost_shard_comes_back_empty_with_the_counters_of_the_others(
    sharded: InstanceSettings,
) -> None:
    said("add")
    queue = Queue.objects.create(name="bank", throttle_limit=40, share=30)
    Transfer.objects.create(queue=queue, peer=1, sent=12, received=2)

    said("add")
    assert not Queue.objects.using("other").exists()
    ShardMap.objects.using("other").all().delete()  # its alias leads to a new database
    said("add")

    new = Queue.objects.using("other").get()
    assert [new.name, new.throttle_limit, new.share] == ["bank", 40, 0]
    [counter] = new.transfers.all()
    assert [counter.peer, counter.sent, counter.received] == [0, 2, 12]
    assert json.loads(said("--json"))["sums"] == {"bank": 30}  # `limit` repairs it


def test_an_instance_without_shards_cannot_grow(settings: Settings) -> None:
    settings.HIPQ = {}

    assert refused("add") == refused("settle") == "HIPQ['default'] has no SHARDS."
    assert refused("add", "--json") == "add does not take --json; it takes nothing."


def test_a_database_in_use_is_not_waited_for(sharded: InstanceSettings) -> None:
    def add_elsewhere() -> str:
        try:
            return refused("add")
        finally:
            connections.close_all()

    with transaction.atomic(), ThreadPoolExecutor(1) as pool:
        next_id("default", Job)  # as an enqueue does, in a transaction that stays open
        assert pool.submit(add_elsewhere).result() == (
            "database 'default' is in use: try again, or stop the workers."
        )
    said("add")


def test_show_prints_a_line_for_each_shard_and_queue(sharded: InstanceSettings) -> None:
    Queue.objects.create(name="bank", throttle_limit=40)
    said("add")
    Queue.objects.filter(name="bank").update(share=30.5, owed=2)
    queue = Queue.objects.using("other").get()
    Transfer.objects.using("other").create(queue=queue, peer=0, sent=9.5, received=2)
    bank = Queue.objects.get()
    JobFactory.create(queue=bank, job_type__queue=bank)

    lines = [line.split() for line in said().splitlines()]
    shown = json.loads(said("show", "--json"))

    assert lines == [
        ["shard", "database", "queue", "limit", "share", "owed", "running", "due"],
        ["0", "default", "bank", "40", "30.5", "2", "0", "1"],
        ["1", "other", "bank", "40", "0", "0", "0", "0"],
    ]
    assert shown == {
        "count": 2,
        "count_before": 2,
        "shards": [
            {
                "number": 0,
                "alias": "default",
                "problem": None,
                "queues": [
                    {
                        "name": "bank",
                        "throttle_limit": 40,
                        "share": 30.5,
                        "owed": 2,
                        "running": 0,
                        "due": 1,
                    }
                ],
            },
            {
                "number": 1,
                "alias": "other",
                "problem": None,
                "queues": [
                    {
                        "name": "bank",
                        "throttle_limit": 40,
                        "share": 0,
                        "owed": 0,
                        "running": 0,
                        "due": 0,
                    }
                ],
            },
        ],
        "sums": {"bank": 40},
    }


def test_a_shard_that_does_not_answer_is_named(
    sharded: InstanceSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    Queue.objects.create(name="bank", throttle_limit=40)
    said("add")
    for module in (growing, monitored):
        monkeypatch.setattr(module, "answers", lambda alias: alias != "other")
    out = StringIO()

    with pytest.raises(CommandError, match=r"^other does not answer$"):
        call_command("hipq_shards", "--json", stdout=out)

    shown = json.loads(out.getvalue())
    assert [each["problem"] for each in shown["shards"]] == [None, "other does not answer"]
    assert shown["sums"] == {"bank": None}
    assert refused("add") == "Nothing was added: other does not answer."
    assert refused("settle") == "Nothing was settled: other does not answer."


def test_an_instance_without_shards_is_shown_as_one(settings: Settings) -> None:
    settings.HIPQ = {}
    Queue.objects.create(name="bank", throttle_limit=40)

    shown = json.loads(said("--json"))

    assert (shown["count"], shown["sums"], len(shown["shards"])) == (1, {"bank": 40}, 1)
    assert shown["shards"][0]["queues"][0]["share"] is None
    assert get_instance().shards == ("default",)
