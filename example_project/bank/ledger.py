"""What the bank has in hand and what it has done, counted by itself."""

from collections import Counter
from dataclasses import dataclass
from threading import Lock

from example_project.bank.payment import Payment


@dataclass
class Account:
    """What the bank knows of one order."""

    requests: int = 0
    is_in_hand: bool = False
    is_charged: bool = False


class Ledger:
    """The bank's books; every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._accounts: dict[str, Account] = {}
        self._counts = Counter(
            requests=0, repeated=0, charged=0, in_hand=0, max_in_hand=0, unfinished=0
        )

    def take(self, payment: Payment) -> int:
        """Take a request in hand; return its number, 0 where the order is in hand already."""
        with self._lock:
            account = self._accounts.setdefault(payment.order, Account())
            self._counts["requests"] += 1
            self._counts["repeated"] += account.requests > 0
            if account.is_in_hand:
                return 0
            account.requests += 1
            account.is_in_hand = True
            self._add_to_hand(payment.weight)
            return account.requests

    def let_go(self, payment: Payment, *, charged: bool) -> None:
        """Put an order out of hand; however often it is asked for, its card is charged once."""
        with self._lock:
            account = self._accounts[payment.order]
            account.is_in_hand = False
            self._counts["in_hand"] -= payment.weight
            self._counts["charged"] += charged and not account.is_charged
            account.is_charged |= charged

    def finish(self) -> None:
        """Note that all answers to a request were sent."""
        with self._lock:
            self._counts["unfinished"] -= 1

    def report(self) -> dict[str, int]:
        """Return all counts; those in hand are weighted."""
        with self._lock:
            return {"orders": len(self._accounts), **self._counts}

    def _add_to_hand(self, weight: int) -> None:
        self._counts["unfinished"] += 1
        self._counts["in_hand"] += weight
        self._counts["max_in_hand"] = max(self._counts["max_in_hand"], self._counts["in_hand"])
