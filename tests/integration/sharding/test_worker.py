"""A worker of a shard: which it may serve, and what it does there."""

from __future__ import annotations

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.conf.instances import InstanceSettings, get_instance, on_shard
from hipq_django.models import Job, Schedule, Worker
from hipq_django.models.catalog import get_queue
from tests.declaring import Declare

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.django_db(databases=["default", "other"], transaction=True),
]


def work(*arguments: str) -> None:
    call_command("hipq_worker", *arguments, "--until-idle", "--threads", "1")


@pytest.mark.parametrize(
    ("shard", "said"),
    [
        ("x", "--shard 'x': SHARDS has default and other."),
        (
            "other",
            "database 'other' is no shard of instance 'default' yet: run manage.py hipq_shards "
            "add.",
        ),
    ],
)
def test_what_is_no_shard_is_not_served(sharded: InstanceSettings, shard: str, said: str) -> None:
    with pytest.raises(CommandError) as raised:
        work("--shard", shard)

    assert str(raised.value) == said


def test_a_worker_is_idle_once_it_has_asked_others_for_their_shares(
    sharded: InstanceSettings, settings: Settings
) -> None:
    """The first shard has the whole limit."""
    queues = {"bank": {"THROTTLE_LIMIT": 1}}
    settings.HIPQ = {"default": {"SHARDS": ["default", "other"], "QUEUES": queues}}
    call_command("hipq_shards", "add")
    get_queue("default", "bank")
    with on_shard("default", "other"), transaction.atomic(using="other"):
        hipq.enqueue_many([hipq.NewJob("echo", queue="bank") for _ in range(3)])

    work("--shard", "other")

    assert not Job.objects.using("other").live().exists()


def test_throttlers_see_in_how_many_shards_a_queue_is(sharded: InstanceSettings) -> None:
    before = get_queue("default", "bank").shard_count
    call_command("hipq_shards", "add")

    assert (before, get_queue("default", "bank").shard_count) == (1, 2)
    with on_shard("default", "other"):
        assert get_queue("default", "bank").shard_count == 2


def test_a_worker_serves_one_shard_and_says_so(
    sharded: InstanceSettings, declare: Declare, caplog: pytest.LogCaptureFixture
) -> None:
    """It leaves the schedules to the first shard."""
    call_command("hipq_shards", "add")
    declare("tidy", schedule=hipq.Every(hours=1))(print)
    with on_shard("default", "other"), transaction.atomic(using="other"):
        hipq.enqueue("echo")

    with caplog.at_level("INFO"):
        work("--shard", "other")

    assert not Job.objects.using("other").live().exists()
    assert Job.objects.using("other").get().job_type.name == "echo"
    assert Worker.objects.using("other").get().state == Worker.State.STOPPED
    assert not Worker.objects.exists()
    assert not Schedule.objects.using("other").exists()
    lines = [record for record in caplog.records if record.name == "hipq_django"]
    assert {getattr(record, "shard", None) for record in lines} == {"other"}
    assert get_instance().database == "default"
