"""In which shard a new job is, and what it keeps of its shard key."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.db import OperationalError, connections, transaction
from django.test.utils import CaptureQueriesContext

import hipq_django as hipq
from hipq_django import flow
from hipq_django.conf.instances import InstanceSettings
from hipq_django.domain.redaction import quoted
from hipq_django.exceptions import (
    ConfigurationError,
    InvalidJobError,
    ShardError,
    ShardsError,
)
from hipq_django.job_types.current import CURRENT_JOB
from hipq_django.models import Job
from hipq_django.sharding import routing
from tests.declaring import Declare
from tests.integration.sharding.conftest import Configure
from tests.testapp import tasks

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.django_db(databases=["default", "other"], transaction=True),
]


def by_region(new: hipq.NewJob) -> Any:
    return new.job_data.get("region")


OF_A_CALL: list[tuple[dict[str, Any], str, str | None]] = [
    ({"shard_key": "tenant-1"}, "other", "tenant-1"),
    ({"shard_key": "tenant-7", "job_key": "A"}, "default", "tenant-7"),
    ({"job_key": "A"}, "other", None),
    ({"job_key": "a"}, "default", None),
]


@pytest.mark.parametrize(("options", "alias", "stored"), OF_A_CALL, ids=str)
def test_a_job_is_where_its_first_key_leads(
    shards: None, options: dict[str, Any], alias: str, stored: str | None
) -> None:
    job = hipq.enqueue("echo", **options)

    assert job.using == alias
    assert job.pk % 64 == ["default", "other"].index(alias)
    assert Job.objects.using(alias).get(pk=job.pk).shard_key == stored


BY_SETTING: list[tuple[str, Any, str | None, str | None]] = [
    ("tenant", {"tenant": "tenant-1"}, "other", "tenant-1"),
    ("tenant", {"tenant": 10}, "default", "10"),
    ("tenant", {"tenant": None}, "default", None),
    ("tenant", {}, "default", None),
    ("tenant", ["tenant"], "default", None),
    (f"{__name__}.by_region", {"region": "A"}, "other", "A"),
    (f"{__name__}.by_region", {}, "default", None),
]


@pytest.mark.parametrize(("shard_key", "data", "alias", "stored"), BY_SETTING, ids=str)
def test_shard_key_of_the_setting_comes_before_the_job_key(
    shards: None, configure: Configure, shard_key: str, data: Any, alias: str, stored: str | None
) -> None:
    configure(SHARD_KEY=shard_key)

    job = hipq.enqueue("echo", data, job_key="a")

    assert (job.using, job.shard_key) == (alias, stored)
    assert hipq.enqueue("echo", data, shard_key="tenant-1").using == "other"


def test_unique_jobs_with_the_same_arguments_are_in_one_shard(
    shards: None, declare: Declare
) -> None:
    declare("sync", unique="waiting")(print)
    jobs = [hipq.enqueue("sync", {"shop": number}) for number in range(10)]

    assert {job.using for job in jobs} == {"default", "other"}
    assert [hipq.enqueue("sync", {"shop": number}) for number in range(10)] == jobs


def test_a_job_without_keys_is_where_a_transaction_is_open(shards: None) -> None:
    for alias in ("default", "other"):
        with transaction.atomic(using=alias):
            assert {hipq.enqueue("echo").using for _ in range(9)} == {alias}
    with ExitStack() as opened:
        for alias in ("default", "other", "other"):
            opened.enter_context(transaction.atomic(using=alias))
        assert hipq.enqueue("echo").using == "other"


def test_it_is_else_where_the_job_is_that_calls_or_anywhere(shards: None) -> None:
    mine = hipq.enqueue("echo", shard_key="tenant-1")
    token = CURRENT_JOB.set(mine)
    children = [hipq.enqueue("echo") for _ in range(9)]
    elsewhere = hipq.enqueue("echo", shard_key="tenant-7")
    CURRENT_JOB.reset(token)

    assert {(job.using, job.parent_id) for job in children} == {("other", mine.pk)}
    assert (elsewhere.using, elsewhere.parent_id) == ("default", None)
    assert {hipq.enqueue("echo").using for _ in range(40)} == {"default", "other"}


def test_a_job_follows_others_into_their_shard(shards: None) -> None:
    there = hipq.enqueue("echo", shard_key="tenant-1")

    assert hipq.enqueue("echo", after=[there]).using == "other"
    assert hipq.enqueue("echo", after=[there.pk], shard_key="A").using == "other"


REFUSED: list[tuple[Callable[[Job, Job], dict[str, Any]], str]] = [
    (
        lambda here, there: {"after": [here, there.pk]},
        "job {0} is in shard default, job {1} in other; jobs that wait for each other need the "
        "same shard_key.",
    ),
    (
        lambda here, there: {"after": [there], "job_key": "a"},
        "enqueue 'echo': its shard is default, that of job {1} other; jobs that wait for each "
        "other need the same shard_key.",
    ),
    (
        lambda here, there: {"batch": there.pk, "job_key": "a"},
        "enqueue 'echo': its shard is default, that of its batch other; give the batch its "
        "shard_key.",
    ),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_what_belongs_together_is_in_one_shard(
    shards: None, options: Callable[[Job, Job], dict[str, Any]], message: str
) -> None:
    here, there = (hipq.enqueue("echo", shard_key=key) for key in ("tenant-7", "tenant-1"))

    with pytest.raises(ShardError) as raised:
        hipq.enqueue("echo", **options(here, there))

    assert str(raised.value) == message.format(here.pk, there.pk)


def test_who_commits_beside_a_transaction_is_warned_once(
    shards: None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routing, "_warned", [])
    caplog.set_level(logging.WARNING, "hipq_django")
    with transaction.atomic(using="other"):
        hipq.enqueue("echo", shard_key="tenant-1")
    assert "enqueue_beside_transaction" not in caplog.text

    with transaction.atomic(using="other"):
        for _ in range(2):
            hipq.enqueue("echo", shard_key="tenant-7")
        transaction.set_rollback(True, using="other")

    assert caplog.text.count("event=enqueue_beside_transaction") == 1
    assert Job.objects.using("default").count() == 2


@pytest.mark.parametrize("key", ["", "x" * 256, "a\0b", 7])
@pytest.mark.parametrize("is_sharded", [True, False])
def test_what_is_no_shard_key_is_refused(
    request: pytest.FixtureRequest, *, is_sharded: bool, key: Any
) -> None:
    if is_sharded:
        request.getfixturevalue("shards")

    with pytest.raises(InvalidJobError) as raised:
        hipq.enqueue("echo", shard_key=key)

    assert str(raised.value) == (
        f"enqueue 'echo': shard_key {quoted(key)}: give text of 1 to 255 characters."
    )


def test_without_shards_the_shard_key_is_stored_and_all_else_as_before(
    configure: Configure,
) -> None:
    for _ in range(2):  # what the type's row says is read again after the first
        hipq.enqueue("echo")
    sent = []
    for shard_key in (None, "tenant-1"):
        with CaptureQueriesContext(connections["default"]) as captured:
            assert hipq.enqueue("echo", shard_key=shard_key).using == "default"
        sent.append([query["sql"] for query in captured.captured_queries])

    assert len(sent[0]) == len(sent[1]) == 1
    assert "shard" not in sent[0][0]
    configure(SHARD_KEY="tenant")
    assert hipq.enqueue("echo", {"tenant": "A"}).shard_key == "A"
    assert hipq.enqueue("echo", {"tenant": "A"}, shard_key="B").shard_key == "B"


def test_a_task_of_django_tasks_goes_where_its_key_leads(shards: None) -> None:
    add: Any = tasks.add
    results = [add.using(shard_key=key).enqueue(1, 2) for key in ("tenant-1", "tenant-7")]

    jobs = [hipq.get_job(result.id) for result in results]
    assert [(job.using, job.shard_key) for job in jobs] == [
        ("other", "tenant-1"),
        ("default", "tenant-7"),
    ]
    assert [add.get_result(result.id).id for result in results] == [str(job.pk) for job in jobs]


def test_in_async_code_it_is_the_same(shards: None) -> None:
    async def enqueue() -> list[Job]:
        first = await hipq.aenqueue("echo", shard_key="tenant-1")
        async with hipq.abatch(shard_key="tenant-1") as batch:
            await batch.aenqueue(hipq.NewJob("echo", job_key="a"))
        await hipq.acancel("echo", "a", shard_key="tenant-1")
        return [first, *await hipq.aenqueue_many([hipq.NewJob("echo", job_key="A")])]

    assert {job.using for job in async_to_sync(enqueue)()} == {"other"}
    assert Job.objects.using("other").filter(outcome="cancelled", shard_key="tenant-1").count() == 1


@pytest.fixture
def away(shards: None) -> Iterator[None]:
    """The first shard does not answer; the map has been read before."""

    def fail() -> None:
        raise OperationalError("no route to host")

    hipq.shards()
    connections["default"].close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connections["default"], "connect", fail)
        yield


def test_a_shard_that_is_away_stops_only_what_goes_there(away: None, declare: Declare) -> None:
    declare("sync", unique="waiting")(print)

    job = hipq.enqueue("echo", job_key="A")
    assert job.using == hipq.complete("echo", "A").using == "other"
    assert hipq.get_job(job.pk) == job
    assert {hipq.enqueue("sync", {"shop": shop}).using for shop in (3, 8)} == {"other"}
    with pytest.raises(OperationalError):
        hipq.enqueue("echo", job_key="a")
    with pytest.raises(ShardsError) as raised:
        hipq.enqueue_many([hipq.NewJob("echo", job_key=key) for key in "aB"], per_shard=True)
    assert isinstance(raised.value.failed["default"], OperationalError)
    assert [job.job_key for job in raised.value.enqueued["other"]] == ["B"]


def test_flow_has_no_shards(sharded: InstanceSettings) -> None:
    with pytest.raises(ConfigurationError) as raised:
        flow.start("any")

    assert str(raised.value) == (
        "HIPQ['default'] has SHARDS and FLOW. Give flow an instance of its own."
    )
