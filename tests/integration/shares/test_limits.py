"""A limit is changed in all shards, while they work, and though it is cut off."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connections

from hipq_django.conf.instances import get_instance, on_shard
from hipq_django.exceptions import ConfigurationError, InvalidJobError
from hipq_django.models import Queue, ShardMap, Transfer
from hipq_django.processes.row_sync import RowSync
from hipq_django.sharing import visits
from hipq_django.sharing.limits import LimitNotChangedError, change_limit
from hipq_django.sharing.pulling import pull
from tests.concurrency.sessions import Session, errors_of, run_together, wait_until_blocked
from tests.integration.shares.conftest import Bank

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.django_db(transaction=True, databases="__all__"),
]


def limit_of(bank: Bank) -> set[int]:
    return {int(own.limit) for own in bank.look()}


def change(bank: Bank, limit: float | None = None) -> None:
    change_limit(bank.config, "bank", None if limit is None else Decimal(str(limit)))


def split(bank: Bank, *running: int) -> None:
    """Let each shard run so many jobs, and have as much of the limit."""
    for number, jobs in enumerate(running):
        bank.add(number, jobs)
        pull(bank.config, number, "bank", bank.aliases)
        bank.start(number, jobs)


@pytest.mark.parametrize("limit", [25, 10, 4.5, 1, 0])
def test_a_limit_is_changed_in_all_shards(bank: Bank, limit: float) -> None:
    split(bank, 3, 4)

    change(bank, limit)

    assert {own.limit for own in bank.look()} == {Decimal(str(limit))}
    assert sum(own.total for own in bank.look()) == limit
    assert sum(own.running for own in bank.look()) == 7


def test_what_is_free_is_cut_before_what_is_used(bank: Bank) -> None:
    split(bank, 3, 4)

    change(bank, 7)

    assert [own.share for own in bank.look()] == [3, 4]
    bank.check()


def test_what_is_owed_is_cut_last(bank: Bank) -> None:
    split(bank, 10)
    bank.add(1, 10)
    pull(bank.config, 1, "bank", bank.aliases)

    change(bank, 3)

    [first, _] = bank.look()
    assert [first.share, first.owed] == [0, 3]


def test_what_is_on_its_way_counts_and_arrives(bank: Bank) -> None:
    bank.look()
    Queue.objects.update(share=4)
    Transfer.objects.create(queue=Queue.objects.get(), peer=1, sent=6)

    change(bank)

    assert [own.share for own in bank.look()] == [4, 6]


@pytest.mark.parametrize("sent", [0, 9])
def test_a_sum_that_a_failover_has_spoiled_is_repaired(bank: Bank, sent: int) -> None:
    split(bank, 0, 6)
    Transfer.objects.update(sent=sent)

    change(bank)

    bank.check()
    assert sum(own.share for own in bank.look()) == 10


def test_a_row_that_no_job_has_needed_yet_gets_the_limit(bank: Bank) -> None:
    change(bank, 5)

    assert [own.share for own in bank.look()] == [5, 0]


@pytest.mark.parametrize("limit", [20, 4])
@pytest.mark.parametrize(
    "step", [6, *(pytest.param(n, marks=pytest.mark.nightly) for n in range(1, 13) if n != 6)]
)
def test_a_change_that_is_cut_off_is_done_by_another_one(
    bank: Bank, monkeypatch: pytest.MonkeyPatch, step: int, limit: int
) -> None:
    split(bank, 3, 4)
    visit, left = visits.ShardedQueue.visit, step

    def cut_off(*arguments: Any, **keywords: Any) -> Any:
        nonlocal left
        left -= 1
        if not left:
            raise KeyboardInterrupt
        return visit(*arguments, **keywords)

    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(visits.ShardedQueue, "visit", cut_off)
        change(bank, limit)

    assert sum(own.total for own in bank.look()) <= min(own.limit for own in bank.look())
    change(bank, limit)
    assert limit_of(bank) == {limit}
    assert sum(own.share for own in bank.look()) == limit


def test_pulls_go_on_while_a_limit_is_changed(bank: Bank) -> None:
    bank.add(0, 20)
    bank.add(1, 20)

    for limit in (30, 4, 12):
        pulls = [partial(pull, bank.config, i % 2, "bank", bank.aliases) for i in range(4)]
        assert not errors_of(run_together(*pulls, partial(change, bank, limit)))
        bank.check()


def test_two_changes_at_once_follow_each_other(bank: Bank, session: Session) -> None:
    other = Session()
    session.begin()
    session(lambda: ShardMap.objects.select_for_update().get())

    changing = other.start(lambda: change(bank, 20))
    wait_until_blocked()
    assert limit_of(bank) == {10}
    session.commit()

    changing.result(20)
    other.close()
    assert limit_of(bank) == {20}


@pytest.mark.parametrize("number", [0, 1])
def test_if_a_shard_does_not_answer_the_old_limit_stays(
    bank: Bank, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    bank.look()
    alias = bank.aliases[number]
    nowhere = {**connections[alias].settings_dict, "PORT": "1"}
    connections[alias].close()

    with monkeypatch.context() as patch:
        patch.setattr(connections[alias], "settings_dict", nowhere)
        with pytest.raises(LimitNotChangedError) as caught:
            change(bank, 20)

    assert str(caught.value) == f"The limit of 'bank' was not changed: {alias} does not answer."
    assert limit_of(bank) == {10}


def test_an_instance_without_shards_is_refused(bank: Bank, settings: Any) -> None:
    settings.HIPQ = {"default": {"DATABASE": "other"}}

    with pytest.raises(ConfigurationError, match="has no SHARDS"):
        change_limit(get_instance(), "bank", Decimal(5))


def deploy(bank: Bank, settings: Any, limit: int, number: int) -> None:
    """Start a worker in a shard, with another limit in the setting."""
    shards = settings.HIPQ["default"]["SHARDS"]
    settings.HIPQ = {"default": {"SHARDS": shards, "QUEUES": {"bank": {"THROTTLE_LIMIT": limit}}}}
    with on_shard("default", bank.aliases[number]):
        RowSync(get_instance()).start()


@pytest.mark.parametrize("number", [0, 1])
def test_a_limit_that_the_setting_changes_is_changed_in_all_shards_by_the_next_worker(
    bank: Bank, settings: Any, number: int
) -> None:
    split(bank, 3, 4)

    for limit in (20, 6):
        deploy(bank, settings, limit, number)

        assert limit_of(bank) == {limit}
        assert sum(own.total for own in bank.look()) == limit


def test_a_limit_that_was_edited_stays_until_it_is_reset(bank: Bank, settings: Any) -> None:
    change(bank, 15)

    for number in (0, 1):
        deploy(bank, settings, 20, number)
    assert limit_of(bank) == {15}

    call_command("hipq_sync", "--reset", "bank")
    assert limit_of(bank) == {20}
    bank.check()


def test_if_a_shard_is_away_the_worker_starts_and_the_next_one_changes_the_limit(
    bank: Bank, settings: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bank.look()
    connections["other"].close()

    with monkeypatch.context() as patch:
        nowhere = {**connections["other"].settings_dict, "PORT": "1"}
        patch.setattr(connections["other"], "settings_dict", nowhere)
        deploy(bank, settings, 20, 0)
    assert "event=limit_not_changed" in caplog.text
    assert limit_of(bank) == {10}

    deploy(bank, settings, 20, 0)
    assert limit_of(bank) == {20}


def test_the_command_changes_a_limit_and_repairs_the_sum(
    bank: Bank, capsys: pytest.CaptureFixture[str]
) -> None:
    call_command("hipq_shards", "limit", "bank", "12.5")
    Queue.objects.update(share=1)
    call_command("hipq_shards", "limit", "bank")
    assert sum(own.share for own in bank.look()) == Decimal("12.5")
    call_command("hipq_shards", "limit", "bank", "0")

    assert capsys.readouterr().out == "bank: limit 12.5\nbank: limit 12.5\nbank: limit none\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "limit: name a queue."),
        (["bank", "x"], "limit: 'x': give a number up to 1,000,000"),
        (["bank", "1.0001"], "throttle_limit"),
        (["bnak", "5"], "Instance 'default' has no queue 'bnak'."),
    ],
)
def test_the_command_says_what_is_wrong(bank: Bank, arguments: list[str], said: str) -> None:
    with pytest.raises(CommandError, match=said):
        call_command("hipq_shards", "limit", *arguments)


def test_a_wrong_limit_is_refused(bank: Bank) -> None:
    with pytest.raises(InvalidJobError, match="throttle_limit"):
        change(bank, 10_000_000)


def test_shards_that_are_not_added_yet_have_no_part(sharded: Callable[..., Bank]) -> None:
    bank = sharded("default", "other")
    ShardMap.objects.all().delete()

    change(bank, 20)

    assert not Queue.objects.using("other").exists()
    assert Queue.objects.get().share == 20
