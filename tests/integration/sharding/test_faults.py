"""What goes wrong between shards: settings that differ, a dead shard, growing that is cut off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connections

import hipq_django as hipq
from hipq_django.conf.instances import InstanceSettings, get_instance
from hipq_django.exceptions import ShardMapError, ShardsError
from hipq_django.maintenance import growing
from hipq_django.models import Answer, Job, ShardMap
from hipq_django.sharding.map import forget, map_of
from tests.factories import JobFactory
from tests.integration.sharding.conftest import Configure
from tests.integration.shares.conftest import third

__all__ = ["third"]

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.django_db(databases="__all__", transaction=True),
]

HERE, THERE = "tenant-7", "tenant-1"


# Settings that differ

SOURCE = {"SOURCE": "tests.mailbox.Mailbox", "MAP": "tests.mailbox.read"}
PROCESSES: dict[str, Callable[[], Any]] = {
    "worker": lambda: call_command("hipq_worker", "--shard", "other"),
    "supervisor": lambda: call_command("hipq_worker"),
    "consumer": lambda: call_command("hipq_consume", "post"),
    "web, enqueue": lambda: hipq.enqueue("echo", shard_key=THERE),
    "web, answer": lambda: hipq.complete("ask", "A"),
    "web, id": lambda: hipq.get_job(129),
}


@pytest.mark.parametrize("process", PROCESSES)
def test_a_process_whose_setting_does_not_fit_the_map_does_nothing(
    shards: None, configure: Configure, process: str
) -> None:
    configure(SHARDS=["other", "default"], SOURCES={"post": SOURCE})

    with pytest.raises((ShardMapError, CommandError)) as raised:
        PROCESSES[process]()

    assert str(raised.value).endswith("Deploy the setting that the shards were made with.")
    assert not any(model.objects.using("other").exists() for model in (Job, Answer))


# A dead shard


@pytest.fixture
def dead(shards: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The second shard, whose server takes no connections."""
    forget()
    map_of(get_instance())
    connections["other"].close()
    nowhere = {**connections["other"].settings_dict, "HOST": "127.0.0.1", "PORT": "1"}
    with monkeypatch.context() as patch:
        patch.setattr(connections["other"], "settings_dict", nowhere)
        yield "other"
        connections["other"].close()


def test_beside_a_dead_shard_the_jobs_of_the_others_are_enqueued(dead: str) -> None:
    wanted = [hipq.NewJob("echo", shard_key=key) for key in (THERE, HERE, THERE)]

    with pytest.raises(ShardsError) as raised:
        hipq.enqueue_many(wanted, per_shard=True)

    assert {alias: len(jobs) for alias, jobs in raised.value.enqueued.items()} == {"default": 1}
    assert isinstance(raised.value.failed[dead], OperationalError)
    assert Job.objects.using("default").count() == 1


# Answers while jobs settle

ANSWERS: dict[str, Callable[[str], Any]] = {
    "complete": lambda key: hipq.complete("ask", key, 5),
    "receive_many": lambda key: hipq.receive_many([hipq.NewAnswer("ask", key, response=5)]),
}


def running(alias: str) -> Job:
    """Return a job in this shard that awaits its answer, with a key that leads to the second."""
    job = hipq.enqueue("ask", job_key="A", shard_key={"default": HERE, "other": THERE}[alias])
    values = {"state": "running", "attempt": 1, "worker": None}
    Job.objects.using(alias).filter(pk=job.pk).update(**values)
    return job


@pytest.mark.parametrize("places", [["default"], ["other"], ["other", "default"]], ids=str)
@pytest.mark.parametrize("answer", ANSWERS)
def test_while_jobs_settle_an_answer_finds_the_new_place_first_and_then_the_former(
    shards: None, places: list[str], answer: str
) -> None:
    ShardMap.objects.using("default").update(count_before=1)
    forget()
    jobs = [running(alias) for alias in places]

    for job in jobs:
        ANSWERS[answer]("A")
        job.refresh_from_db()
        assert job.outcome == "succeeded"
        job.delete()


# Growing that is cut off

WRITES = ('INSERT INTO "hipq_shard"', 'UPDATE "hipq_shard"')


def add_until(config: InstanceSettings, write: int) -> None:
    """Add what SHARDS says, and be cut off before so many writes of the map."""
    left = write

    def cut_off(execute: Callable[..., Any], sql: str, *arguments: Any) -> Any:
        nonlocal left
        left -= sql.startswith(WRITES)
        if not left:
            raise KeyboardInterrupt
        return execute(sql, *arguments)

    with ExitStack() as stack, suppress(KeyboardInterrupt):
        for alias in config.shards:
            stack.enter_context(connections[alias].execute_wrapper(cut_off))
        growing.add(config)


@pytest.mark.parametrize(
    ("known", "write"),
    [(known, write) for known, writes in ((1, 5), (2, 3)) for write in range(1, writes)],
)
def test_an_add_that_is_cut_off_leaves_the_former_map_and_is_repeated(
    sharded: InstanceSettings, configure: Configure, third: str, known: int, write: int
) -> None:
    aliases = ["default", "other", third]
    if known == 2:
        growing.add(sharded)
    JobFactory.create(job_key="order-1000")
    configure(SHARDS=aliases)

    add_until(get_instance(), write)

    forget()
    assert [shard.alias for shard in hipq.shards()] == aliases[:known]
    job = hipq.enqueue("echo", job_key="A")
    growing.add(get_instance())
    forget()
    assert [shard.alias for shard in hipq.shards()] == aliases
    counts = [
        ShardMap.objects.using(alias).values_list("count", "count_before") for alias in aliases
    ]
    assert [row for rows in counts for row in rows] == [(3, known)] * 3
    assert hipq.get_job(job.pk) == job
    assert hipq.explain("echo", "A")
