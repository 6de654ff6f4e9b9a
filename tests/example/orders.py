"""The orders: what the supplier is asked, and what its messages mean."""

import threading
from collections.abc import Iterator

import pytest
from django.conf import LazySettings

from example_project.orders.jobs import buy
from example_project.orders.models import Purchase
from example_project.supplier.server import TOPIC, Supplier
from hipq_django.answers.intake import Intake
from hipq_django.conf.instances import get_instance
from hipq_django.models import Answer, Job
from hipq_django.sources import Received
from hipq_django.testing import assert_enqueued
from tests.docs.project import free_port
from tests.running import run_due_jobs

pytestmark = pytest.mark.django_db


class Topic:
    """What the supplier has sent; a producer that keeps its messages."""

    def __init__(self) -> None:
        self.messages: list[Received] = []

    def produce(self, topic: str, *, key: bytes, value: bytes) -> None:
        """Keep it."""
        assert topic == TOPIC
        self.messages.append(Received(value, f"{topic}:0:{len(self.messages)}:0", key=key))

    def flush(self, timeout: float) -> int:
        """Nothing is left to be sent."""
        return 0


@pytest.fixture
def topic() -> Topic:
    """An empty topic."""
    return Topic()


@pytest.fixture(autouse=True)
def supplier(topic: Topic, settings: LazySettings) -> Iterator[Supplier]:
    """The supplier, which answers at once."""
    with Supplier(topic) as supplier:
        thread = threading.Thread(target=supplier.serve_forever, args=(0.01,))
        thread.start()
        settings.SUPPLIER_URL = supplier.address
        yield supplier
        supplier.shutdown()
        thread.join()


def purchase(number: int) -> Purchase:
    """Return a purchase for which the supplier does its `number`th thing, ordered and waiting."""
    while Purchase.objects.create(item="Lamps", quantity=1).pk % 5 != (number - 1) % 5:
        pass
    bought = buy("Lamps", 3)
    run_due_jobs()
    return bought


def consume(topic: Topic) -> None:
    """Take in what the supplier has sent, as `hipq_consume supplier` does."""
    config = get_instance()
    Intake(config, config.source("supplier")).take_all(topic.messages)
    run_due_jobs()


def state_of(bought: Purchase) -> tuple[str, str]:
    bought.refresh_from_db()
    return bought.state, bought.supplier_said


def test_a_purchase_and_its_order_are_stored_together() -> None:
    bought = buy("Lamps", 3)

    job = assert_enqueued("place_order", job_key=bought.key)
    assert job.job_data == {"purchase": bought.pk}


@pytest.mark.parametrize("number", [0, 1, 3, 4])
def test_a_confirmation_settles_the_purchase(number: int, topic: Topic) -> None:
    bought = purchase(number)

    consume(topic)

    assert state_of(bought) == ("confirmed", f"arrives in {bought.pk % 7 + 1} days")
    assert Job.objects.get(job_key=bought.key).outcome == "succeeded"


def test_a_refusal_is_final(topic: Topic) -> None:
    bought = purchase(2)

    consume(topic)

    assert state_of(bought) == ("refused", "out of stock")
    assert Job.objects.get(job_key=bought.key).outcome == "failed"


def test_a_message_that_is_cut_off_is_kept_and_the_next_one_counts(topic: Topic) -> None:
    bought = purchase(3)

    consume(topic)

    kept = Answer.objects.get(kind="malformed")
    assert "not JSON in UTF-8" in kept.problem
    assert state_of(bought)[0] == "confirmed"


def test_a_supplier_that_cannot_be_reached_is_tried_again(
    settings: LazySettings,
) -> None:
    settings.SUPPLIER_URL = f"http://127.0.0.1:{free_port()}/orders"
    bought = buy("Lamps", 1)

    run_due_jobs()

    job = Job.objects.get(job_key=bought.key)
    assert (job.state, state_of(bought)[0]) == ("retry", "waiting")
