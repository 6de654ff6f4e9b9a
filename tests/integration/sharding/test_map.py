"""The map: what the databases say of the shards of an instance."""

from __future__ import annotations

import socket
from collections.abc import Callable
from time import monotonic
from typing import Any

import pytest
from django.db import OperationalError, connections
from pytest_django import DjangoAssertNumQueries, Settings

import hipq_django as hipq
from hipq_django.conf.instances import InstanceSettings, get_instance
from hipq_django.database import answering
from hipq_django.domain.sharding import Shard
from hipq_django.exceptions import ConfigurationError, InvalidJobError, ShardMapError
from hipq_django.models import ShardMap
from hipq_django.processes.start_up import check_database
from hipq_django.sharding import map as sharding_map
from hipq_django.sharding.map import forget, map_of

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.django_db(databases=["default", "other"], transaction=True),
]

BOTH = [Shard(0, "default"), Shard(1, "other")]
Broken = Callable[[str], None]


def store(alias: str, number: int, count: int = 2, count_before: int = 1) -> None:
    ShardMap.objects.using(alias).create(
        instance="default", number=number, count=count, count_before=count_before, first_id=100
    )


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Broken:
    """Let a database answer nobody who asks for the map."""
    down: set[str] = set()

    def break_(alias: str) -> None:
        opened = answering.answering

        def refuse(using: str) -> Any:
            if using in down:
                raise OperationalError("no route to host")
            return opened(using)

        down.add(alias)
        monkeypatch.setattr(sharding_map, "answering", refuse)

    return break_


def test_without_a_row_shard_0_is_alone(sharded: InstanceSettings) -> None:
    assert hipq.shards() == [Shard(0, "default")]
    assert hipq.shard_of("tenant-1") == Shard(0, "default")
    assert map_of(sharded).of_id(7) == Shard(0, "default")


def test_keys_and_ids_lead_to_their_shards(sharded: InstanceSettings) -> None:
    store("default", 0)
    store("other", 1)

    found = map_of(sharded)

    assert hipq.shards() == BOTH
    assert [hipq.shard_of(key).number for key in ("tenant-1", "tenant-7")] == [1, 0]
    assert (found.former_of_key("tenant-1"), found.former_of_key("tenant-7")) == (BOTH[0], None)
    assert [found.of_id(each) for each in (65, 128, 129, 130)] == [BOTH[0], *BOTH, None]
    assert (found.of_alias("other"), found.of_alias("elsewhere")) == (BOTH[1], None)


def test_the_first_that_answers_and_has_a_row_counts(
    sharded: InstanceSettings, broken: Broken
) -> None:
    store("other", 1)
    assert hipq.shards() == BOTH  # the first was lost, and its alias leads to an empty database

    forget()
    broken("default")
    assert hipq.shards() == BOTH

    forget()
    broken("other")
    with pytest.raises(OperationalError):
        hipq.shards()


def test_the_map_is_read_again_when_it_is_five_seconds_old(
    sharded: InstanceSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000.0
    monkeypatch.setattr(sharding_map, "steady", lambda: now)
    assert len(hipq.shards()) == 1
    store("default", 0)

    now += 5
    assert len(hipq.shards()) == 1
    now += 0.1
    assert len(hipq.shards()) == 2


def test_the_row_is_read_beside_the_callers_transaction(sharded: InstanceSettings) -> None:
    """A transaction that is aborted, or on another database, changes nothing."""
    store("default", 0)
    connection = connections["default"]
    connection.ensure_connection()

    assert connection.connection is not None
    with answering.answering("default") as other:
        assert other.connection is not connection.connection
    assert hipq.shards() == BOTH


def test_a_server_that_says_nothing_costs_two_seconds(
    sharded: InstanceSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    store("other", 1)
    settings = connections["default"].settings_dict
    with socket.create_server(("127.0.0.1", 0)) as silent, monkeypatch.context() as patch:
        patch.setitem(settings, "HOST", "127.0.0.1")
        patch.setitem(settings, "PORT", silent.getsockname()[1])
        begin = monotonic()

        assert hipq.shards() == BOTH  # as the second says

        assert monotonic() - begin < 2 * answering.ANSWER_SECONDS


DEPLOY = "Deploy the setting that the shards were made with."


@pytest.mark.parametrize(
    ("shards", "row", "message"),
    [
        (
            ["default", "other"],
            {"number": 1},
            "database 'default' is shard 1 of instance 'default', but SHARDS has it as number 0. "
            + DEPLOY,
        ),
        (
            ["default", "other"],
            {"number": 0, "count": 3},
            "instance 'default' has 3 shards, but SHARDS names 2: default, other. Deploy the "
            "setting with all of them.",
        ),
    ],
)
def test_a_setting_that_does_not_fit_is_refused(
    sharded: InstanceSettings, shards: list[str], row: dict[str, Any], message: str
) -> None:
    store("default", **row)

    with pytest.raises(ShardMapError) as raised:
        hipq.shards()

    assert str(raised.value) == message
    with pytest.raises(ShardMapError):
        check_database(sharded)


def test_a_worker_does_not_start_without_the_setting(
    sharded: InstanceSettings, settings: Settings
) -> None:
    store("default", 0)
    settings.HIPQ = {}

    with pytest.raises(ShardMapError) as raised:
        check_database(get_instance())

    assert str(raised.value) == (
        "database 'default' is shard 0 of 2 of instance 'default', but the setting has no SHARDS."
    )


def test_a_worker_starts_only_on_a_shard_that_is_in_use(sharded: InstanceSettings) -> None:
    said = "database 'other' is no shard of instance 'default' yet: run manage.py hipq_shards add."
    check_database(sharded)

    with pytest.raises(ShardMapError) as raised:
        check_database(sharded.on("other"))
    assert str(raised.value) == said

    store("default", 0)
    store("other", 1)
    forget()
    check_database(sharded.on("other"))

    ShardMap.objects.using("default").delete()  # the database is another, empty one
    with pytest.raises(ShardMapError):
        check_database(sharded)


def test_code_that_does_not_fit_stops_all_use(
    sharded: InstanceSettings, settings: Settings
) -> None:
    settings.HIPQ = {"default": {"SHARDS": ["default", "other"], "SHARD_KEY": "no.such"}}

    with pytest.raises(ConfigurationError, match=r"'no\.such' cannot be imported"):
        hipq.shards()
    with pytest.raises(ConfigurationError, match=r"'no\.such' cannot be imported"):
        check_database(get_instance())


@pytest.mark.parametrize("key", ["", "x" * 256, "a\0b", "\ud800", 7, None])
def test_what_is_no_shard_key_is_refused(key: Any) -> None:
    with pytest.raises(InvalidJobError, match="give text of 1 to 255 characters"):
        hipq.shard_of(key)


def test_an_instance_without_shards_asks_nothing(
    settings: Settings, django_assert_num_queries: DjangoAssertNumQueries, broken: Broken
) -> None:
    broken("other")
    settings.HIPQ = {"pay": {"DATABASE": "other"}}

    with django_assert_num_queries(0, using="other"):
        assert hipq.shards("pay") == [hipq.shard_of("a", instance="pay")] == [Shard(0, "other")]
