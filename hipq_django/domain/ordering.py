"""The order of waiting jobs as one number, so that one index and one ORDER BY serve all orders.

The orders are those of the original hipq. Equal ranks are ordered by id.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _

MIN_PRIORITY = -1_000_000
MAX_PRIORITY = 1_000_000
_PRIORITY_SPAN = 1 << 21  # holds every allowed priority, shifted to start at 0
_TIME_SPAN = 1 << 42  # milliseconds since 1970, up to the year 2109
MAX_RANK = (1 << 63) - 2
HELD_RANK = MAX_RANK + 1
"""The rank of a job that waits for others, behind all that may become due."""
COMMITTED = timedelta(seconds=2)
"""How long an enqueue usually takes at most until its commit."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class Order(TextChoices):
    """Which waiting job is next."""

    TIME = "time", _("scheduled time, then priority")
    PRIORITY = "priority", _("priority, then scheduled time")
    AGEING = "ageing", _("priority that ages, so that none starves")


@dataclass(frozen=True, slots=True)
class Ordering:
    """The order of one queue.

    `granularity_seconds`: times that fall into the same such span count as equal, so that the
    priority decides between them. `ageing_seconds`: how much later a job may have been scheduled
    for each point that its priority is better.
    """

    order: str = Order.TIME
    granularity_seconds: float = 1.0
    ageing_seconds: float = 60.0
    _granule: int = field(init=False, repr=False, compare=False)
    """The span in milliseconds."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_granule", max(1, round(self.granularity_seconds * 1_000)))

    def rank(self, scheduled_run_time: datetime, priority: int) -> int:
        """Return the rank of a job; the job with the lowest rank is next."""
        urgency = priority - MIN_PRIORITY
        moment = _milliseconds(scheduled_run_time)
        if self.order == Order.TIME:
            return _bounded(moment // self._granule * _PRIORITY_SPAN + urgency)
        if self.order == Order.PRIORITY:
            return _bounded(urgency * _TIME_SPAN + min(moment, _TIME_SPAN - 1))
        return _bounded(moment + round(priority * self.ageing_seconds * 1_000))

    def high_water_mark(self, now: datetime) -> int:
        """Return a rank that no due job exceeds: behind it an index scan may stop."""
        if self.order == Order.TIME:
            return _bounded((_milliseconds(now) // self._granule + 1) * _PRIORITY_SPAN - 1)
        return MAX_RANK

    def first_future_rank(self, now: datetime) -> int:
        """Return the lowest rank that a job of the future can have."""
        if self.order == Order.TIME:
            return _bounded(_milliseconds(now) // self._granule * _PRIORITY_SPAN)
        return -MAX_RANK

    def low_water_mark(self, first_rank: int | None, now: datetime) -> int:
        """Return a rank below which there is no due job, given the `first_rank` that is due now.

        It holds for what is committed later too, by time at least, where enqueues are committed
        soon: they have their places further behind.
        """
        recent = self.first_future_rank(now - COMMITTED)
        if first_rank is None:
            return recent
        return min(first_rank, recent) if self.order == Order.TIME else first_rank

    def as_ranking(self) -> dict[str, str | float]:
        """Return the order in the form that is stored once all waiting jobs have its ranks."""
        return {
            "order": self.order,
            "granularity_seconds": self.granularity_seconds,
            "ageing_seconds": self.ageing_seconds,
        }


def _milliseconds(moment: datetime) -> int:
    return max(0, (moment - _EPOCH) // _MILLISECOND)


def _bounded(rank: int) -> int:
    return max(-MAX_RANK, min(rank, MAX_RANK))
