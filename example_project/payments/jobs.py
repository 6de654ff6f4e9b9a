"""The job that charges a card: the request goes out now, the answer comes later.

hipq_django imports the module `jobs` of every installed app.
"""

from typing import Any

from django.conf import settings
from django.dispatch import receiver

import hipq_django as hipq
from example_project.payments.bank import request_payment
from example_project.payments.models import Order
from hipq_django.models import Job
from hipq_django.signals import job_finished

BIG_AMOUNT = 1_000  # euros
BIG_FACTOR = 3  # a big payment costs the bank as much work as three others
FINAL_ERRORS = ("card stolen",)
BACK_OFF = hipq.Exponential(max_attempts=4, first_seconds=1, cap_seconds=60)


def charge(order: Order) -> Job:
    """Enqueue the payment of an order, as part of the caller's transaction."""
    return charge_card.enqueue(
        {"order": order.pk},
        job_key=order.key,
        throttle_factor=BIG_FACTOR if order.amount >= BIG_AMOUNT else 1,
    )


@hipq.job_type("charge_card", queue="bank", timeout=settings.BANK_TIMEOUT_SECONDS, retry=BACK_OFF)
def charge_card(job: Job) -> Any:
    """Send the request to the bank.

    This may run more than once for an order, after a crash or a timeout. The bank is told the
    same key each time, so it charges the card once.
    """
    order = Order.objects.get(pk=job.job_data["order"])
    payment = {"order": order.key, "amount": str(order.amount), "callback": hipq.callback_url(job)}
    request_payment(payment, idempotency_key=order.key)
    # The job stays running, and counts against the limit of its queue, but holds no thread.
    return hipq.WAIT


@charge_card.on_response
def card_charged(job: Job, response: Any) -> Any:
    """Runs in a worker once the bank has called back; the request of the bank stays short."""
    settle(job, Order.State.PAID, f"receipt {response['receipt']}")
    return response


@charge_card.on_error
def after_error(job: Job) -> hipq.RetryIn | hipq.GiveUp:
    """Decide what follows an error: declined, not answered in time, bank not reached, and so on."""
    failures = job.attempts.count()
    if job.error in FINAL_ERRORS or failures >= BACK_OFF.max_attempts:
        settle(job, Order.State.DECLINED, str(job.error))
        return hipq.GiveUp()
    settle(job, Order.State.WAITING, f"{job.error}; will be tried again")
    return hipq.RetryIn(BACK_OFF.delay(failures))


@receiver(job_finished)
def note_cancellation(job: Job, **_: Any) -> None:
    """An operator has cancelled the job in the admin: nobody will pay the order any more."""
    if job.job_type.name == charge_card.name and job.outcome == Job.Outcome.CANCELLED:
        settle(job, Order.State.DECLINED, "nothing; the shop has cancelled the payment")


def settle(job: Job, state: Order.State, bank_said: str) -> None:
    """Write down how the payment stands; what is paid stays paid, whoever comes late."""
    order = Order.objects.filter(pk=job.job_data["order"]).exclude(state=Order.State.PAID)
    order.update(state=state, bank_said=bank_said)
