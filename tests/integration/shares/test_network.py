"""Pulls over a network that is slow, or loses what a server has said."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from django.db import connections

from chaos.proxy import Network, Proxy
from hipq_django.models import Queue
from hipq_django.sharing.pulling import pull
from tests.concurrency.sessions import Session
from tests.integration.shares.conftest import Bank

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.django_db(transaction=True, databases="__all__"),
]

AWAY = 0.4
"""How long the far shard takes to answer, in seconds."""


@pytest.fixture
def network(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> Iterator[Network]:
    """What lies between this process and the first shard."""
    connection, network = connections["default"], Network(random.Random(1))
    connection.ensure_connection()
    info = connection.connection.info
    socket = f"{info.host}/.s.PGSQL.{info.port}"
    connection.close()
    with closing(Proxy(socket, network)) as proxy:
        there = {**connection.settings_dict, "HOST": "127.0.0.1", "PORT": proxy.port}
        with monkeypatch.context() as patch:
            patch.setattr(connection, "settings_dict", there)
            yield network
            network.heal()
            connection.close()


def got(bank: Bank) -> Any:
    return pull(bank.config, 1, "bank", bank.aliases)


@pytest.mark.parametrize("fault", ["lose_commits", "lose_requests"])
def test_a_peer_whose_commit_breaks_off_has_sent_all_or_nothing(
    bank: Bank, network: Network, fault: str
) -> None:
    bank.add(1, 20)
    bank.look()

    setattr(network, fault, 1.0)
    assert got(bank) == 0
    network.heal()

    bank.check()
    assert sum(own.share for own in bank.look()) == (0 if fault == "lose_commits" else 10)
    got(bank)
    assert bank.look()[1].share == 10


@pytest.mark.nightly
def test_a_peer_far_away_gives_what_is_idle_and_later_what_it_owes(
    bank: Bank, network: Network
) -> None:
    bank.add(0, 8, state="running")
    bank.add(0, 5)
    bank.add(1, 20)

    network.latency = (AWAY / 2, AWAY / 2)
    assert got(bank) == 2
    bank.end_all(0)
    got(bank)

    network.heal()
    bank.check()
    assert bank.look()[1].share == 10


@pytest.mark.nightly
def test_a_peer_far_away_that_was_locked_is_asked_again_by_the_next_pull(
    bank: Bank, network: Network, session: Session
) -> None:
    bank.add(1, 20)
    bank.look()
    network.latency = (AWAY / 2, AWAY / 2)

    session.begin()
    session(lambda: list(Queue.objects.filter(name="bank").select_for_update(no_key=True)))
    assert got(bank) == 0
    session.roll_back()

    assert got(bank) == 10
