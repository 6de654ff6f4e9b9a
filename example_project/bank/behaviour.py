"""What the bank does for an order: drawn from a seed, so that each run is the same."""

import random
from enum import Enum
from typing import Any

from example_project.bank.payment import Payment


class Behaviour(Enum):
    """What a bank may do with the requests for an order."""

    PAYS = "pays"
    PAYS_TWICE = "pays, and says so twice"
    DECLINES_ONCE = "declines at first, pays when asked again"
    LOSES_ONCE = "never answers at first, pays when asked again"
    REFUSES = "declines for good"


# One card is drawn for each order, and each is drawn once in orders 0 to 9, 10 to 19 and so on.
DECK: list[Behaviour] = [*Behaviour, *[Behaviour.PAYS] * 5]


def behaviour_of(payment: Payment, seed: int) -> Behaviour:
    """Return what the bank does for this order."""
    shuffle, card = divmod(payment.number, len(DECK))
    return random.Random(f"{seed}-{shuffle}").sample(DECK, len(DECK))[card]  # noqa: S311 - a game


def duration(payment: Payment, seed: int, slowest_seconds: float) -> float:
    """Return how long the bank works on the order, in seconds."""
    return slowest_seconds * random.Random(f"{seed}-{payment.order}").uniform(0.3, 1)  # noqa: S311 - a game


def answers(behaviour: Behaviour, payment: Payment, request: int) -> list[dict[str, Any]]:
    """Return what is sent to the callback URL after the first or a later request."""
    paid = {"response": {"receipt": f"R-{payment.number}"}}
    if behaviour is Behaviour.REFUSES:
        return [{"error": "card stolen"}]
    if behaviour is Behaviour.DECLINES_ONCE and request == 1:
        return [{"error": "insufficient funds"}]
    if behaviour is Behaviour.LOSES_ONCE and request == 1:
        return []
    return [paid, paid] if behaviour is Behaviour.PAYS_TWICE else [paid]
