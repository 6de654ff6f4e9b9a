"""A request for a payment, as the shop sends it."""

import json
from dataclasses import dataclass
from decimal import Decimal

BIG_AMOUNT = 1_000  # euros
BIG_WEIGHT = 3


@dataclass(frozen=True)
class Payment:
    """`order` is the idempotency key: requests with the same one are for the same payment."""

    order: str
    amount: Decimal
    callback: str

    @property
    def weight(self) -> int:
        """How much of the bank's capacity it takes."""
        return BIG_WEIGHT if self.amount >= BIG_AMOUNT else 1

    @property
    def number(self) -> int:
        """The number at the end of the order."""
        return int(self.order.rpartition("-")[2])


def parse_payment(order: str | None, body: bytes) -> Payment:
    """Return the payment of a request; raise `ValueError` where it is none."""
    try:
        content = json.loads(body)
        payment = Payment(str(order), Decimal(content["amount"]), content["callback"])
        _ = payment.number, payment.weight
    except (ValueError, KeyError, TypeError, ArithmeticError) as error:
        raise ValueError(
            'send {"amount": "9.50", "callback": "http://…"} and the header '
            f"'Idempotency-Key: order-42' ({error!r})"
        ) from error
    return payment
