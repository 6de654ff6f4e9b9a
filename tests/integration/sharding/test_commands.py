"""Commands that go through all shards of an instance, or through one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import timedelta
from decimal import Decimal
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connections, transaction
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.conf.instances import InstanceSettings, on_shard
from hipq_django.database import clock
from hipq_django.models import Job, Queue, ShardMap, Transfer
from hipq_django.sharding.map import forget

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.django_db(databases=["default", "other"], transaction=True),
]

ALIASES = ("default", "other")


@pytest.fixture
def bank(sharded: InstanceSettings, settings: Settings) -> None:
    """A queue with the limit 10 in two shards; in each a job is due."""
    queues = {"bank": {"THROTTLE_LIMIT": 10}}
    settings.HIPQ = {"default": {"SHARDS": [*ALIASES], "QUEUES": queues}}
    call_command("hipq_shards", "add")
    for alias in ALIASES:
        with on_shard("default", alias), transaction.atomic(using=alias):
            hipq.enqueue("echo", queue="bank", job_key=alias)


@pytest.fixture
def silent(bank: None) -> Iterator[None]:
    """The second shard does not answer."""
    other = connections["other"]
    other.close()
    with pytest.MonkeyPatch.context() as patch:
        nowhere = {**other.settings_dict, "HOST": "127.0.0.1", "PORT": "1"}
        patch.setattr(other, "settings_dict", nowhere)
        yield


def said(*arguments: str, code: int = 0) -> str:
    """Return what a command prints; it ends with this exit code."""
    out = StringIO()
    expected: Any = nullcontext()
    if code:
        expected = pytest.raises(CommandError if code == 1 else SystemExit)
    with expected as raised:
        call_command(*arguments, stdout=out)
    assert code <= 1 or raised.value.code == code
    return out.getvalue()


def status(*arguments: str, code: int = 0) -> list[dict[str, Any]]:
    shards: list[dict[str, Any]] = json.loads(said("hipq_status", "--json", *arguments, code=code))[
        "shards"
    ]
    return shards


def findings(*arguments: str, code: int = 4) -> dict[str, Any]:
    """Return the shards of what the doctor finds, by its codes."""
    found = json.loads(said("hipq_doctor", "--json", *arguments, code=code))
    return {finding["code"]: finding["shard"] for finding in found}


def test_status_shows_each_shard(bank: None) -> None:
    for alias, share in zip(ALIASES, (7, 3), strict=True):
        Queue.objects.using(alias).filter(name="bank").update(share=share)

    shards = status()

    assert [(s["number"], s["alias"], s["problem"]) for s in shards] == [
        (0, "default", None),
        (1, "other", None),
    ]
    of_bank = [queue for shard in shards for queue in shard["queues"] if queue["name"] == "bank"]
    assert [(queue["due"], queue["share"]) for queue in of_bank] == [(1, 7), (1, 3)]
    assert [shard["alias"] for shard in status("--shard", "other")] == ["other"]
    assert "Shard 1: other" in said("hipq_status")
    assert "3 of 10" in said("hipq_status")


def test_status_names_a_shard_that_does_not_answer(silent: None) -> None:
    first, second = status(code=1)

    assert "queues" in first
    assert second == {"number": 1, "alias": "other", "problem": "other does not answer"}
    assert "other does not answer" in said("hipq_status", code=1)


def test_only_a_shard_can_be_named(bank: None) -> None:
    with pytest.raises(CommandError, match="SHARDS has default and other"):
        call_command("hipq_status", "--shard", "x")


def test_prune_deletes_in_each_shard_that_answers(bank: None) -> None:
    old = clock.now("default") - timedelta(days=100)
    for alias in ALIASES:
        with connections[alias].cursor() as cursor:
            cursor.execute("DELETE FROM hipq_job")
        with on_shard("default", alias), transaction.atomic(using=alias):
            job = hipq.enqueue("echo", queue="bank")
        Job.objects.using(alias).filter(pk=job.pk).update(state="running", attempt=1)
        values = {"state": "final", "outcome": "succeeded", "update_time": old}
        Job.objects.using(alias).filter(pk=job.pk).update(**values)

    assert "other: bank: deleted 1" in said("hipq_prune", "--shard", "other")
    left = [Job.objects.using(alias).count() for alias in ALIASES]
    assert "default: bank: deleted 1" in said("hipq_prune")
    assert (left, Job.objects.count()) == ([1, 0], 0)


def test_prune_goes_on_beside_a_shard_that_does_not_answer(silent: None) -> None:
    assert "default: bank: deleted 0" in said("hipq_prune", code=1)


def test_the_doctor_examines_each_shard(bank: None) -> None:
    """Nobody serves the queue."""
    Job.objects.using("default").all().delete()

    assert findings() == {"no_worker": "other"}
    assert findings("--shard", "default", code=0) == {}
    assert "queue bank in other: " in said("hipq_doctor", code=4)


def test_the_doctor_names_a_shard_that_does_not_answer(silent: None) -> None:
    assert findings()["shard_unreachable"] == "other"


def lose_share() -> None:
    Queue.objects.using("default").filter(name="bank").update(share=Decimal("7.5"))


def lose_a_transfer() -> None:
    """The first shard has sent 2, and has lost that."""
    row = Queue.objects.using("other").get(name="bank")
    Transfer.objects.using("other").create(queue=row, peer=0, received=2)
    Queue.objects.using("other").filter(pk=row.pk).update(share=2)


@pytest.mark.parametrize(("lose", "total"), [(lose_share, "7.5"), (lose_a_transfer, "12")])
def test_the_doctor_finds_shares_that_are_not_the_limit(bank: None, lose: Any, total: str) -> None:
    lose()

    text = said("hipq_doctor", code=4)

    assert f"The shares of 'bank' are {total}, its limit is 10." in text
    assert "manage.py hipq_shards limit bank" in text
    call_command("hipq_shards", "limit", "bank")
    assert "share_sum" not in findings()


def test_the_doctor_says_what_is_to_be_done_about_the_map(bank: None) -> None:
    for alias in ALIASES:
        Job.objects.using(alias).all().delete()
        ShardMap.objects.using(alias).update(count_before=1)
    forget()

    text = said("hipq_doctor", code=3)

    assert "it has grown from 1 to 2 shards, and is not settled." in text


def test_the_doctor_says_where_no_jobs_go_yet(sharded: InstanceSettings) -> None:
    assert findings() == {"shard_map": None}


def test_a_job_is_found_by_its_shard_key(bank: None) -> None:
    key = next(key for key in map(str, range(9)) if hipq.shard_of(key).alias == "other")
    job = hipq.enqueue("echo", queue="bank", job_key="a", shard_key=key)

    assert job.using == "other"
    assert f"{job.pk}: " in said("hipq_jobs", "explain", str(job.pk))
    assert "cancelled" in said("hipq_jobs", "cancel", "a", "--type", "echo", "--shard-key", key)
