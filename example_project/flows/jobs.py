"""The jobs of the shop's stages: each message of a flow becomes one."""

from typing import Any

from django.conf import settings

import hipq_django as hipq
from example_project.payments.bank import request_payment
from hipq_django.models import Job


@hipq.job_type(
    "pay_order",
    queue="bank",
    timeout=settings.BANK_TIMEOUT_SECONDS,
    retry=hipq.Exponential(max_attempts=4, first_seconds=1, cap_seconds=5),
)
def pay_order(job: Job) -> Any:
    """Send the request to the bank, which calls back; its receipt is the result of the job."""
    order = job.job_data
    payment = {
        "order": order["id"],
        "amount": str(order["total"]),
        "callback": hipq.callback_url(job),
    }
    request_payment(payment, idempotency_key=order["id"])
    return hipq.WAIT


@hipq.job_type("ship_order", queue="shipping")
def ship_order(job: Job) -> dict[str, str]:
    """Hand the parcel over."""
    return {"parcel": f"P-{job.job_key}"}
