"""SHARDS and SHARD_KEY of an instance: what they mean, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pytest_django import Settings

import hipq_django as hipq
from hipq_django.conf import instances, rules
from hipq_django.conf.instances import get_instance, is_replica, on_shard, serve
from hipq_django.exceptions import ConfigurationError
from tests.databases import named_databases

POSTGRESQL = {"ENGINE": "django.db.backends.postgresql", "NAME": "never_connected_to"}
SQLITE = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
DATABASES = {"jobs_0": POSTGRESQL, "jobs_1": POSTGRESQL, "lite": SQLITE}

per_tenant = hipq.KeyLimit("tenant", 5)
too_slow = hipq.RateLimit(1, per=60)
fast_enough = hipq.RateLimit(2, per=60)
not_a_function = 5


def by_tenant(job: hipq.NewJob) -> str | None:
    return str(job.job_data["tenant"])


@pytest.fixture(autouse=True)
def databases() -> Iterator[None]:
    with named_databases(DATABASES):
        yield


def of_shards(*more: str, **options: Any) -> dict[str, Any]:
    return {"pay": {"SHARDS": ["jobs_0", "jobs_1", *more], **options}}


def test_a_sharded_instance_is_on_its_first_shard_until_another_is_named(
    settings: Settings,
) -> None:
    settings.HIPQ = of_shards(SHARD_KEY="tenant")

    found = get_instance("pay")

    assert (found.database, found.shards) == ("jobs_0", ("jobs_0", "jobs_1"))
    assert (found.is_sharded, found.shard_key) == (True, "tenant")
    assert found.on("jobs_0") is found
    assert (found.on("jobs_1").database, found.on("jobs_1").shards) == ("jobs_1", found.shards)
    assert [is_replica(alias) for alias in DATABASES] == [False, False, True]


def test_a_process_serves_one_shard_and_a_block_works_on_another(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.HIPQ = {**of_shards(), "shop": {"DATABASE": "lite"}}
    monkeypatch.setattr(instances, "_served", {})
    serve("pay", "jobs_1")

    with ThreadPoolExecutor() as threads, on_shard("pay", "jobs_0"), on_shard("shop", "default"):
        there = threads.submit(lambda: get_instance("pay").database).result()
        here = get_instance("pay").database, get_instance("shop").database

    assert (there, here, get_instance("pay").database) == ("jobs_1", ("jobs_0", "lite"), "jobs_1")


def test_an_instance_without_shards_is_its_own_shard(settings: Settings) -> None:
    settings.HIPQ = {"pay": {"DATABASE": "jobs_1"}}

    found = get_instance("pay")

    assert (found.shards, found.is_sharded, found.shard_key) == (("jobs_1",), False, "")


WRONG = [
    ("E052", {"pay": {"SHARDS": []}}, "HIPQ['pay']['SHARDS'] is []."),
    ("E050", of_shards(DATABASE="default"), "HIPQ['pay'] has DATABASE and SHARDS."),
    ("E051", of_shards("jobs_0"), "HIPQ['pay']['SHARDS'] names 'jobs_0' twice."),
    ("E051", of_shards("a"), "HIPQ['pay']['SHARDS'] names 'a', which DATABASES does not have."),
    ("E053", of_shards("lite"), "HIPQ['pay']['SHARDS'] has 'lite', which is sqlite."),
    ("E054", of_shards(FLOW={"LOG": "all"}), "HIPQ['pay'] has SHARDS and FLOW."),
    (
        "E058",
        {**of_shards(), "shop": {"SHARDS": ["jobs_1"]}, "plain": {"DATABASE": "jobs_1"}},
        "HIPQ['pay'] and HIPQ['shop'] give 'jobs_1' different numbers.",
    ),
]


@pytest.mark.parametrize(("check_id", "setting", "message"), WRONG)
def test_what_is_wrong_with_shards_stops_all_use_of_the_setting(
    settings: Settings, check_id: str, setting: dict[str, Any], message: str
) -> None:
    settings.HIPQ = setting

    [found] = rules.problems()

    assert (found.id, found.msg) == (f"hipq.{check_id}", message)
    with pytest.raises(ConfigurationError) as raised:
        get_instance()
    assert str(raised.value) == f"{message} {found.hint}"


def test_several_instances_may_share_shards_under_the_same_numbers(settings: Settings) -> None:
    settings.HIPQ = {**of_shards(), "shop": {"SHARDS": ["jobs_0"]}}

    assert [*rules.problems()] == []


OF_CODE: list[tuple[str, dict[str, Any], str]] = [
    ("", {"SHARD_KEY": f"{__name__}.by_tenant"}, ""),
    ("", {"SHARD_KEY": "tenant"}, ""),
    ("E057", {"SHARD_KEY": "no.such"}, "HIPQ['pay']['SHARD_KEY'] 'no.such' cannot be imported."),
    (
        "E057",
        {"SHARD_KEY": f"{__name__}.not_a_function"},
        f"HIPQ['pay']['SHARD_KEY'] '{__name__}.not_a_function' cannot be imported.",
    ),
    (
        "E055",
        {"QUEUES": {"bank": {"THROTTLERS": [f"{__name__}.too_slow"]}}},
        "HIPQ['pay']['QUEUES']['bank']: RateLimit(1, per=60) is less than one for each of 2 "
        "shards.",
    ),
    ("", {"QUEUES": {"bank": {"THROTTLERS": [f"{__name__}.fast_enough"]}}}, ""),
    (
        "W056",
        {"QUEUES": {"bank": {"THROTTLERS": [f"{__name__}.per_tenant"]}}},
        "HIPQ['pay']['QUEUES']['bank']: KeyLimit('tenant') counts in each shard.",
    ),
]


@pytest.mark.parametrize(("check_id", "options", "message"), OF_CODE)
def test_code_that_does_not_fit_shards_is_named(
    settings: Settings, check_id: str, options: dict[str, Any], message: str
) -> None:
    settings.HIPQ = of_shards(**options)

    found = [(problem.id, problem.msg) for problem in rules.sharding_problems("pay")]

    assert found == ([(f"hipq.{check_id}", message)] if check_id else [])


def test_nothing_is_asked_of_the_code_of_an_instance_without_shards(settings: Settings) -> None:
    settings.HIPQ = {"pay": {"QUEUES": {"bank": {"THROTTLERS": [f"{__name__}.per_tenant"]}}}}

    assert [*rules.sharding_problems("pay")] == []
