"""What the demo promises, and how it finds a broken promise."""

import pytest

import hipq_django as hipq
from example_project.demo.results import Round, broken_promises
from example_project.payments.jobs import charge
from example_project.payments.models import Order
from hipq_django.models import Job

pytestmark = pytest.mark.django_db

LIMIT = 6


def report(**changed: int) -> dict[str, int]:
    return {"max_in_flight": LIMIT, "charged": 0} | changed


def place(number: int = 1) -> list[Order]:
    orders = [Order.objects.create(item="Lamp", amount=25) for _ in range(number)]
    for order in orders:
        charge(order)
    return orders


def settle(order: Order, state: str) -> None:
    Order.objects.filter(pk=order.pk).update(state=state)
    hipq.cancel(Job.objects.live().get(job_key=order.key))


def test_nothing_is_broken_when_all_orders_are_settled() -> None:
    orders = Round.begin()
    [paid, declined] = place(2)
    settle(paid, "paid")
    settle(declined, "declined")

    assert broken_promises(orders, report(charged=1), LIMIT) == []


def test_an_order_whose_job_is_not_final_is_not_settled() -> None:
    orders = Round.begin()
    [order] = place()

    assert broken_promises(orders, report(), LIMIT) == [f"Not settled: {order.key} (initial)."]


@pytest.mark.parametrize(
    ("most", "limit", "broken"),
    [
        (7, 6, ["The bank had 7 in flight, 6 are allowed."]),
        (6, 6, []),
        (7, 0, []),  # below 1 is unlimited
    ],
)
def test_a_limit_that_was_exceeded_is_told(most: int, limit: float, broken: list[str]) -> None:
    assert broken_promises(Round.begin(), report(max_in_flight=most), limit) == broken


def test_a_card_that_was_charged_without_the_shops_knowledge_is_told() -> None:
    found = broken_promises(Round.begin(), report(charged=1), LIMIT)

    assert found == ["0 orders are paid, 1 cards were charged."]
