"""The job that orders from the supplier: the request goes out by HTTP, the answer comes by Kafka.

hipq_django imports the module `jobs` of every installed app.
"""

import json
from typing import Any
from urllib.request import Request, urlopen

from django.conf import settings
from django.db import transaction

import hipq_django as hipq
from example_project.orders.models import Purchase
from hipq_django.models import Job

HTTP_TIMEOUT_SECONDS = 4


def buy(item: str, quantity: int) -> Purchase:
    """Store a purchase and enqueue its order, both or none."""
    with transaction.atomic():
        purchase = Purchase.objects.create(item=item, quantity=quantity)
        place_order.enqueue({"purchase": purchase.pk}, job_key=purchase.key)
    return purchase


@hipq.job_type(
    "place_order", queue="supplier", timeout=3600, retry=hipq.Exponential(first_seconds=1)
)
def place_order(job: Job) -> Any:
    """Send the order; the supplier knows one that it gets twice by its reference."""
    purchase = Purchase.objects.get(pk=job.job_data["purchase"])
    order = {"reference": job.job_key, "item": purchase.item, "quantity": purchase.quantity}
    request = Request(  # noqa: S310 - the address is a setting, not a user's input
        settings.SUPPLIER_URL,
        data=json.dumps(order).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urlopen(request, timeout=HTTP_TIMEOUT_SECONDS):  # noqa: S310 - as above
        pass
    # The job stays running until `messages.read` finds its key in a message.
    return hipq.WAIT


@place_order.on_response
def order_confirmed(job: Job, response: Any) -> Any:
    """Runs in a worker once the message has come; the consumer only stores it."""
    settle(job, Purchase.State.CONFIRMED, f"arrives in {response['days']} days")
    return response


@place_order.on_error
def after_error(job: Job) -> hipq.RetryIn | hipq.GiveUp:
    """Give up what the supplier refused; try again where it could not be reached."""
    refused = job.attempts.last()
    if refused is not None and refused.kind == refused.Kind.ANSWERED:
        settle(job, Purchase.State.REFUSED, str(job.error))
        return hipq.GiveUp()
    return hipq.RetryIn(2 ** job.attempts.count())


def settle(job: Job, state: Purchase.State, supplier_said: str) -> None:
    """Write down what the supplier said."""
    purchase = Purchase.objects.filter(pk=job.job_data["purchase"])
    purchase.update(state=state, supplier_said=supplier_said)
