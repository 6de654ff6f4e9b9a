"""Pulls between databases: cut off, late, at once, and beside claims."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.db import connections

from hipq_django.database import transactions
from hipq_django.database.transactions import worker_transaction
from hipq_django.domain import shares
from hipq_django.models import Job, Queue
from hipq_django.sharing import visits
from hipq_django.sharing.pulling import pull
from tests.concurrency.sessions import Session, errors_of, run_together, wait_until_blocked
from tests.databases import on_server
from tests.integration.shares.conftest import Bank

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.django_db(transaction=True, databases="__all__"),
]


def begin(bank: Bank, number: int, steps: int) -> Callable[[], None]:
    """Make the first visits of a pull; return what makes the others."""
    pulling = shares.pull(number, [peer for peer in range(len(bank.aliases)) if peer != number])
    visit, made = next(pulling), 0

    def make(most: int = 99) -> None:
        nonlocal visit, made
        while made < most:
            made += 1
            try:
                visit = pulling.send(bank.queue.visit(visit, worker_transaction))
            except StopIteration:
                return

    make(steps)
    return make


def got(bank: Bank, number: int) -> Any:
    return pull(bank.config, number, "bank", bank.aliases)


def shares_of(bank: Bank) -> list[int]:
    return [int(own.share) for own in bank.look()]


def test_a_shard_gets_what_is_idle_elsewhere(bank: Bank) -> None:
    bank.add(0, 3, state="running")
    bank.add(1, 20)

    assert got(bank, 1) == 7
    assert shares_of(bank) == [3, 7]
    bank.check()


def test_a_peer_whose_queue_no_job_has_needed_yet_gets_its_row(bank: Bank) -> None:
    bank.add(1, 2)

    assert got(bank, 1) == 2
    assert Queue.objects.using("default").get(name="bank").share == 8


def test_a_saturated_shard_owes_what_is_above_its_base(bank: Bank) -> None:
    bank.add(0, 10, state="running")
    bank.add(0, 10)
    bank.add(1, 20)

    assert got(bank, 1) == 0
    assert [int(own.owed) for own in bank.look()] == [5, 0]
    bank.end_all(0)
    assert got(bank, 1) == 10
    bank.check()


def test_jobs_of_a_paused_queue_ask_for_nothing(bank: Bank) -> None:
    bank.add(1, 20)
    Queue.objects.using("other").update(paused=True)

    assert got(bank, 1) == 0


def test_jobs_without_weight_ask_for_nothing_but_those_behind_them_do(bank: Bank) -> None:
    bank.add(1, 1, factor=0)
    bank.add(1, 1, factor=10)

    assert got(bank, 1) == 10


@pytest.mark.parametrize("taker", [0, 1])
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_pull_that_is_cut_off_is_finished_by_the_next_one(
    bank: Bank, steps: int, taker: int
) -> None:
    bank.add(1, 20)

    begin(bank, 1, steps)
    bank.check()
    bank.end_all(1)
    bank.add(taker, 20)
    got(bank, taker)

    bank.check()
    assert bank.look()[taker].share == 10


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_session_that_is_ended_in_a_visit_leaves_nothing_half_done(
    bank: Bank, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    bank.add(1, 20)
    ended = number

    def write_and_end(row: Queue, *holdings: Any) -> None:
        nonlocal ended
        write(row, *holdings)
        if not ended:
            with connections[row.using].cursor() as cursor:
                cursor.execute("SELECT pg_backend_pid()")
                on_server(f"SELECT pg_terminate_backend({cursor.fetchone()[0]})")
        ended -= 1

    write = visits._write
    monkeypatch.setattr(visits, "_write", write_and_end)

    assert got(bank, 1) in (0, 10)
    bank.check()
    got(bank, 1)
    assert bank.look()[1].share == 10


@pytest.mark.parametrize("steps", [1, 2])
def test_a_pull_that_sleeps_takes_nothing_twice(bank: Bank, steps: int) -> None:
    bank.add(1, 6)

    go_on = begin(bank, 1, steps)
    got(bank, 1)
    bank.start(1, 6)
    bank.add(0, 20)
    got(bank, 0)
    bank.add(1, 1)
    got(bank, 1)
    go_on()

    bank.check()
    assert sum(own.share + own.owed for own in bank.look()) == 10


def test_two_pulls_at_one_peer_at_once_get_no_more_than_it_has(
    sharded: Callable[..., Bank], third: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "LOCK_MILLISECONDS", 20_000)
    bank = sharded("default", "other", third)
    bank.look()
    for number in (1, 2):
        bank.add(number, 20)

    pulls = [partial(got, bank, number) for number in (1, 1, 2, 2)]
    for _ in range(3):
        assert not errors_of(run_together(*pulls))
        bank.check()

    assert shares_of(bank)[0] == 0


def test_beside_a_claim_at_the_peer_a_pull_gets_what_the_claim_leaves(
    bank: Bank, monkeypatch: pytest.MonkeyPatch, session: Session
) -> None:
    monkeypatch.setattr(transactions, "LOCK_MILLISECONDS", 20_000)
    bank.add(0, 8)
    bank.add(1, 20)
    puller = Session()

    session.begin()
    session(lambda: list(Queue.objects.filter(name="bank").select_for_update(no_key=True)))
    session(lambda: bank.start(0, 8))
    pulling = puller.start(lambda: got(bank, 1))
    wait_until_blocked()
    session.commit()

    assert pulling.result(20) == 2
    puller.close()
    bank.check()


def test_a_locked_peer_is_left_to_the_next_pull(bank: Bank, session: Session) -> None:
    bank.add(1, 20)
    bank.look()

    session.begin()
    session(lambda: list(Queue.objects.filter(name="bank").select_for_update(no_key=True)))
    assert got(bank, 1) == 0
    session.roll_back()

    assert got(bank, 1) == 10


@pytest.mark.parametrize("is_silent", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_a_dead_peer_costs_two_seconds_at_most_and_nothing_of_what_others_give(
    sharded: Callable[..., Bank], third: str, monkeypatch: pytest.MonkeyPatch, *, is_silent: bool
) -> None:
    bank = sharded("default", "other", third)
    bank.add(1, 20)
    connections[third].close()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1] if is_silent else 1
        nowhere = {**connections[third].settings_dict, "HOST": "127.0.0.1", "PORT": port}
        monkeypatch.setattr(connections[third], "settings_dict", nowhere)
        began = time.monotonic()

        assert got(bank, 1) == 10
        assert time.monotonic() - began < 4
        bank.end_all(1)
        began = time.monotonic()
        got(bank, 1)

    assert time.monotonic() - began < 1.9  # it is not asked again for a while


@pytest.mark.nightly
def test_a_chaos_of_pulls_in_three_databases_keeps_the_limit(
    sharded: Callable[..., Bank], third: str
) -> None:
    bank, chance = sharded("default", "other", third), random.Random(1)
    bank.look()

    def work(number: int) -> None:
        for _ in range(10):
            got(bank, number)
            with worker_transaction(bank.aliases[number]):
                row = bank.row(number)
                Queue.objects.using(row.using).select_for_update(no_key=True).get(pk=row.pk)
                row.refresh_from_db()
                jobs = Job.objects.using(row.using)
                share = row.throttle_limit if row.share is None else row.share
                bank.start(number, max(int(share - jobs.load()), 0))
            if chance.random() < 0.5:
                bank.end_all(number)
                bank.add(number, chance.randrange(20))

    for _ in range(4):
        assert not errors_of(run_together(*[partial(work, number) for number in (0, 1, 2)]))
        bank.check()
