"""The bank of the example, which is a program of its own: what it answers, and how it counts."""

import json
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from example_project.bank.behaviour import DECK, Behaviour, behaviour_of
from example_project.bank.ledger import Ledger
from example_project.bank.payment import Payment, parse_payment
from example_project.bank.server import Bank
from tests.processes.conftest import eventually

pytestmark = pytest.mark.embedded  # no database is touched

SEED = 7
HOUR_SECONDS = 3_600
PATIENCE_SECONDS = 20


class Site(HTTPServer):
    """Takes callbacks, and keeps them for the test; `statuses` are answered first."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Callback)
        self.statuses: list[int] = []
        self.callbacks: queue.Queue[Any] = queue.Queue()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"

    def next_callback(self) -> Any:
        return self.callbacks.get(timeout=PATIENCE_SECONDS)


class _Callback(BaseHTTPRequestHandler):
    server: Site

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(self.server.statuses.pop(0) if self.server.statuses else 200)
        self.end_headers()
        self.server.callbacks.put(json.loads(body))

    def log_message(self, *_: Any) -> None:
        """Keep the test's output clean."""


@contextmanager
def served(server: HTTPServer) -> Iterator[None]:
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield
        server.shutdown()
        thread.join()


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    with served(site):
        yield site


@pytest.fixture
def bank() -> Iterator[Bank]:
    """A bank that is quick."""
    bank = Bank(seed=SEED, slowest_seconds=0.01)
    with served(bank):
        yield bank


def payment(number: int = 1, amount: int = 25, callback: str = "http://site/") -> Payment:
    return Payment(f"order-{number}", Decimal(amount), callback)


def order_that(behaviour: Behaviour) -> int:
    """Return the number of an order with which the bank does this."""
    return next(n for n in range(len(DECK)) if behaviour_of(payment(n), SEED) is behaviour)


def ask(bank: Bank, site: Site, number: int, amount: str = "25") -> int:
    """Send a request as the shop does; return the status."""
    content = {"amount": amount, "callback": site.address}
    headers = {"Idempotency-Key": f"order-{number}"}
    with urlopen(Request(bank.address, json.dumps(content).encode(), headers)) as reply:
        return int(reply.status)


# What the bank does for an order


@pytest.mark.parametrize(
    ("behaviour", "first", "second"),
    [
        (Behaviour.PAYS, "response", "response"),
        (Behaviour.DECLINES_ONCE, "error", "response"),
        (Behaviour.REFUSES, "error", "error"),
    ],
)
def test_the_bank_answers_later(
    bank: Bank, site: Site, behaviour: Behaviour, first: str, second: str
) -> None:
    for kind in (first, second):
        assert ask(bank, site, order_that(behaviour)) == 202
        assert list(site.next_callback()) == [kind]


def test_a_request_may_be_lost_and_is_answered_when_sent_again(bank: Bank, site: Site) -> None:
    lost = order_that(Behaviour.LOSES_ONCE)
    ask(bank, site, lost)
    eventually(lambda: not bank.ledger.report()["unfinished"], "the bank has lost the request")
    assert site.callbacks.empty()

    ask(bank, site, lost)

    assert "response" in site.next_callback()


# What it counts


def test_big_payments_weigh_more_in_the_most_that_was_in_flight() -> None:
    ledger = Ledger()

    ledger.take(payment(1, 999))
    ledger.take(payment(2, 1_000))
    ledger.release(payment(1, 999), charged=True)
    ledger.take(payment(3))

    assert (ledger.report()["in_flight"], ledger.report()["max_in_flight"]) == (4, 4)


# What it refuses


@pytest.mark.parametrize(
    ("order", "body"),
    [
        (None, b'{"amount": "9.50", "callback": "http://site/"}'),
        ("order", b'{"amount": "9.50", "callback": "http://site/"}'),
        ("order-1", b'{"callback": "http://site/"}'),
        ("order-1", b'{"amount": "9.50"}'),
        ("order-1", b'{"amount": "much", "callback": "http://site/"}'),
        ("order-1", b'{"amount": "NaN", "callback": "http://site/"}'),
        ("order-1", b"[]"),
        ("order-1", b"no JSON"),
    ],
)
def test_what_is_no_payment_says_what_one_is(order: str | None, body: bytes) -> None:
    with pytest.raises(ValueError, match="Idempotency-Key: order-42"):
        parse_payment(order, body)


def test_a_request_that_is_no_payment_is_refused(bank: Bank) -> None:
    with pytest.raises(HTTPError) as refused:
        urlopen(Request(bank.address, b"{}"))

    with refused.value:
        assert refused.value.code == 400
    assert bank.ledger.report()["requests"] == 0
