"""Flows: an order on its way to its parcel, readings that are summed up, Fibonacci's numbers."""

import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from django.conf import LazySettings
from django.test import Client

import hipq_django as hipq
from example_project.bank.server import Bank
from example_project.flows.flows import BOARD, FIBONACCI, ORDERS, READINGS, readings
from hipq_django import flow
from hipq_django.flow.testing import drain
from hipq_django.models import Job

pytestmark = pytest.mark.django_db

HOUR_SECONDS = 3_600


@pytest.fixture(autouse=True)
def bank(settings: LazySettings) -> Iterator[Bank]:
    """The bank, which works too slowly to answer within a test; the tests answer for it."""
    with Bank(slowest_seconds=HOUR_SECONDS) as bank:
        thread = threading.Thread(target=bank.serve_forever, args=(0.01,))
        thread.start()
        settings.BANK_URL = bank.address
        yield bank
        bank.shutdown()
        thread.join()


@pytest.fixture
def orders() -> flow.Node:
    return flow.start(ORDERS)


def write(node: flow.Node, pk: str, total: int) -> None:
    node.inputs["order"].write({"id": pk, "total": total})
    drain()


def answer(client: Client, pk: str, receipt: str) -> None:
    """Call back as the bank does."""
    job = Job.objects.get(job_type__name="pay_order", job_key=pk)
    path = urlsplit(hipq.callback_url(job)).path
    response = client.post(path, {"response": {"receipt": receipt}}, "application/json")
    assert response.status_code == 200
    drain()


def test_an_order_that_is_paid_is_shipped(client: Client, orders: flow.Node) -> None:
    write(orders, "A-1", 70)
    answer(client, "A-1", "R-1")

    [shipped] = orders.outputs["shipped"]
    assert shipped["result"] == {"parcel": "P-A-1"}
    assert shipped["data"] == {"id": "A-1", "receipt": "R-1"}


def test_a_doubtful_order_waits_for_a_person(client: Client, orders: flow.Node) -> None:
    write(orders, "A-2", 950)
    human = orders.children["human"]
    assert not Job.objects.filter(job_type__name="pay_order").exists()

    for order in human.inputs["order"]:
        human.outputs["yes"].write(order)
    drain()
    answer(client, "A-2", "R-2")

    [shipped] = orders.outputs["shipped"]
    assert shipped["data"]["id"] == "A-2"


def test_an_order_that_a_person_refuses_is_not_paid(orders: flow.Node) -> None:
    write(orders, "A-3", 950)
    human = orders.children["human"]

    for order in human.inputs["order"]:
        human.outputs["no"].write(order)
    drain()

    assert [order["id"] for order in orders.outputs["refused"]] == ["A-3"]
    assert not Job.objects.filter(job_type__name="pay_order").exists()


def take(node: flow.Node, *values: int, day: str = "2031-05-01") -> None:
    """Let the source of the readings have taken these."""
    node.children["source"].outputs["out"].write_many({"day": day, "value": v} for v in values)
    drain()


@pytest.fixture
def lab() -> flow.Node:
    """The graph of readings; its source comes by the clock, so the test says what it reads."""
    node = flow.start(READINGS)
    node.children["source"].pause()
    return node


def test_readings_above_the_limit_are_summed_up_day_by_day(lab: flow.Node) -> None:
    take(lab, *range(7))  # of which 5 and 6 are above 4
    take(lab, 9, day="2031-05-02")

    assert lab.children["total"].state["days"] == {
        "2031-05-01": {"count": 2, "total": 5 + 6},
        "2031-05-02": {"count": 1, "total": 9},
    }


def test_the_rate_counts_for_all_readings_until_it_changes(lab: flow.Node) -> None:
    take(lab, 5)
    lab.inputs["rate"].write(10)
    take(lab, 6, 7)
    lab.inputs["rate"].write(2)
    take(lab, 8)

    total = lab.children["total"].state["days"]["2031-05-01"]
    assert total == {"count": 4, "total": 5 + 60 + 70 + 16}


def test_another_graph_shows_each_total_although_nobody_has_connected_it(lab: flow.Node) -> None:
    board = flow.start(BOARD).children["board"]
    take(lab, 5)
    assert board.state.all() == {"2031-05-01": 5}
    take(lab, 6, 7)
    take(lab, 8, day="2031-05-02")

    assert board.state.all() == {"2031-05-01": 18, "2031-05-02": 8}


def test_the_totals_go_on_when_the_graph_grows(lab: flow.Node) -> None:
    board = flow.start(BOARD).children["board"]
    lab.inputs["rate"].write(10)
    take(lab, *range(7))
    lab.apply(readings(with_all=True))
    drain()
    take(lab, *range(7, 10))

    total, every = lab.children["total"], lab.children["all"]
    assert total.state["days"] == {"2031-05-01": {"count": 5, "total": 350}}
    assert every.state["days"] == {"2031-05-01": {"count": 3, "total": 7 + 8 + 9}}
    assert board.state.all() == {"2031-05-01": 350}


def test_a_reading_is_taken_every_five_minutes() -> None:
    source = flow.start(READINGS).children["source"]
    drain()
    for minutes in (4, 6):
        with hipq.testing.travel(minutes=minutes):
            drain()
    assert source.state["number"] == 2


def test_fibonaccis_numbers() -> None:
    numbers = flow.start(FIBONACCI)
    for n in (1, 2, 3, 10):
        numbers.inputs["n"].write(n)
    drain()

    found = {result["n"]: result["number"] for result in numbers.outputs["result"]}
    assert found == {1: 1, 2: 1, 3: 2, 10: 55}
