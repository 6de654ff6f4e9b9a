"""What became of the orders: counted in the shop's database, compared with the bank's books."""

from dataclasses import dataclass

from django.db.models import Max, Q, QuerySet

from example_project.payments.models import Order
from hipq_django.models import Answer, Attempt, Job, Queue
from hipq_django.models.job import JobQuerySet

ORDERS_FOR_ALL_CASES = 20
"""Among so many orders in a row the bank is sure to do everything it can do."""


def charges() -> JobQuerySet:
    """Return the jobs that charge cards."""
    jobs: JobQuerySet = Job.objects.filter(job_type__name="charge_card")
    return jobs


@dataclass(frozen=True)
class Round:
    """The orders of one demo: the new ones, and those that an earlier demo left unsettled."""

    left_over: frozenset[int]
    last_before: int

    @classmethod
    def begin(cls) -> "Round":
        """Begin with what is unsettled now."""
        left_over = frozenset(job.job_data["order"] for job in charges().live())
        return cls(left_over, Order.objects.aggregate(last=Max("pk"))["last"] or 0)

    def orders(self) -> QuerySet[Order]:
        """Return the orders."""
        return Order.objects.filter(Q(pk__gt=self.last_before) | Q(pk__in=self.left_over))

    def count(self) -> int:
        """Return how many orders there are."""
        return self.orders().count()

    def jobs(self) -> JobQuerySet:
        """Return the jobs of the orders."""
        return charges().filter(job_key__in=[order.key for order in self.orders()])

    def unsettled(self) -> list[str]:
        """Return which orders are not settled, with the state of their jobs."""
        live = {job.job_key: job.state for job in self.jobs().live()}
        waiting = {o.key: "final" for o in self.orders().filter(state=Order.State.WAITING)}
        return [f"{key} ({state})" for key, state in sorted((waiting | live).items())]

    def results(self) -> dict[str, int]:
        """Return how often each thing happened."""
        paid = self.jobs().filter(outcome=Job.Outcome.SUCCEEDED)
        failed = self.jobs().filter(outcome=Job.Outcome.FAILED)
        kinds = Attempt.Kind
        return {
            "paid at the first request": paid.filter(attempts=None).count(),
            "declined, tried again, paid": _after(paid, kinds.ANSWERED),
            "not answered in time, tried again, paid": _after(paid, kinds.TIMED_OUT),
            "declined for good": failed.count(),
            "answered twice, second answer ignored": Answer.objects.filter(
                job__in=self.jobs(), status=Answer.Status.DUPLICATE
            ).count(),
        }

    def paid(self) -> int:
        """Return how many orders are paid, as the shop sees it."""
        return self.orders().filter(state=Order.State.PAID).count()


def _after(jobs: JobQuerySet, kind: Attempt.Kind) -> int:
    return jobs.filter(attempts__kind=kind).distinct().count()


def limit_of_the_bank() -> float:
    """Return how much the bank may have in flight, weighted."""
    return float(Queue.objects.get(instance="default", name="bank").throttle_limit)


def broken_promises(orders: Round, report: dict[str, int], limit: float) -> list[str]:
    """Return what is not as promised; nothing, if all is well."""
    broken = [f"Not settled: {name}." for name in orders.unsettled()]
    if report["max_in_flight"] > limit >= 1:
        broken.append(f"The bank had {report['max_in_flight']} in flight, {limit:g} are allowed.")
    if report["charged"] != orders.paid():
        broken.append(f"{orders.paid()} orders are paid, {report['charged']} cards were charged.")
    if orders.count() >= ORDERS_FOR_ALL_CASES:
        broken += [f"No order was {name}." for name, n in orders.results().items() if n == 0]
    return broken
