"""The payments that the bank has in flight, and those that it has done, counted by itself."""

from collections import Counter
from dataclasses import dataclass
from threading import Lock

from example_project.bank.payment import Payment


@dataclass
class Account:
    """What the bank knows of one order."""

    requests: int = 0
    is_in_flight: bool = False
    is_charged: bool = False


class Ledger:
    """The bank's books; every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._accounts: dict[str, Account] = {}
        self._counts = Counter(
            requests=0, repeated=0, charged=0, in_flight=0, max_in_flight=0, unfinished=0
        )

    def take(self, payment: Payment) -> int:
        """Take a request; return its number, 0 where its order is in flight already."""
        with self._lock:
            account = self._accounts.setdefault(payment.order, Account())
            self._counts["requests"] += 1
            self._counts["repeated"] += account.requests > 0
            if account.is_in_flight:
                return 0
            account.requests += 1
            account.is_in_flight = True
            self._count_in_flight(payment.weight)
            return account.requests

    def release(self, payment: Payment, *, charged: bool) -> None:
        """End the work on an order; however often it is asked for, its card is charged once."""
        with self._lock:
            account = self._accounts[payment.order]
            account.is_in_flight = False
            self._counts["in_flight"] -= payment.weight
            self._counts["charged"] += charged and not account.is_charged
            account.is_charged |= charged

    def finish(self) -> None:
        """Note that all answers to a request were sent."""
        with self._lock:
            self._counts["unfinished"] -= 1

    def report(self) -> dict[str, int]:
        """Return all counts; those in flight are weighted."""
        with self._lock:
            return {"orders": len(self._accounts), **self._counts}

    def _count_in_flight(self, weight: int) -> None:
        self._counts["unfinished"] += 1
        self._counts["in_flight"] += weight
        self._counts["max_in_flight"] = max(
            self._counts["max_in_flight"], self._counts["in_flight"]
        )
