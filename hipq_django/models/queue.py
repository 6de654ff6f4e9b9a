"""Queues: what an operator edits while jobs run."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from django.db import models
from django.utils import timezone
from django.utils.functional import cached_property
from django.utils.translation import gettext_lazy as _

from hipq_django.conf.instances import get_instance
from hipq_django.conf.options import DAYS, QUEUE
from hipq_django.domain.options import Number, Option
from hipq_django.domain.ordering import MAX_RANK, Order, Ordering
from hipq_django.domain.states import NONE
from hipq_django.domain.validation import MAX_NAME_CHARS
from hipq_django.models import verbs
from hipq_django.models.base import JsonField, Row, RowManager, factor_field

if TYPE_CHECKING:
    from django.utils.functional import _StrOrPromise

_ordering = lru_cache(maxsize=256)(Ordering)  # asked for by each probe, for all queues


@lru_cache(maxsize=256)
def _ranking(order: str, granularity_seconds: float, ageing_seconds: float) -> dict[str, Any]:
    return _ordering(order, granularity_seconds, ageing_seconds).as_ranking()


def _number_field(option: str, verbose_name: _StrOrPromise) -> models.FloatField[Any, Any]:
    return models.FloatField(verbose_name, default=QUEUE[option].default)


def _in_range(option: Option, field: str = "") -> models.Q:
    number: Number = option.check  # type: ignore[assignment]  # of these options
    return models.Q(**{f"{field or option.field}__range": (number.low, number.high)})


class Queue(Row):
    """A queue of an instance; `jobs` is the one way to its jobs."""

    Order = Order

    instance = models.CharField(_("instance"), max_length=100, default="default")
    name = models.CharField(_("name"), max_length=MAX_NAME_CHARS)
    throttle_limit = factor_field(0, _("throttle limit"))
    order = models.CharField(_("order"), max_length=10, choices=Order.choices, default=Order.TIME)
    granularity_seconds = _number_field("GRANULARITY_SECONDS", _("granularity seconds"))
    ageing_seconds = _number_field("AGEING_SECONDS", _("ageing seconds"))
    paused = models.BooleanField(_("paused"), default=False)
    retention_days = _number_field("RETENTION_DAYS", _("retention days"))
    retention_days_succeeded = models.FloatField(
        _("retention days of successes"), null=True, blank=True
    )
    """NULL: as long as the others."""
    throttler_state = JsonField(_("throttler state"), default=dict, editable=False)
    throttler_problem = models.TextField(_("throttler problem"), default=NONE, editable=False)
    ranking = JsonField(
        _("ranking"),
        default=dict,
        editable=False,
        help_text=_(
            "The order by which the waiting jobs are ranked, or how far re-ranking has come."
        ),
    )
    declared = JsonField(_("declared"), default=dict, editable=False)
    # Of a sharded instance; without a share the whole limit counts. `share` and `owed` of all
    # shards, and what is on its way between them, are the limit.
    share = models.DecimalField(
        _("share"), max_digits=12, decimal_places=3, null=True, editable=False
    )
    owed = models.DecimalField(
        _("owed"), max_digits=12, decimal_places=3, default=0, db_default=0, editable=False
    )
    owed_to = models.SmallIntegerField(_("owed to"), null=True, editable=False)
    owed_time = models.DateTimeField(_("owed time"), null=True, editable=False)
    create_time = models.DateTimeField(_("create time"), default=timezone.now, editable=False)
    update_time = models.DateTimeField(_("update time"), default=timezone.now, editable=False)

    low_water_mark: int = -MAX_RANK
    """At a scheduler's last probe no due job had a lower rank, so an index scan may begin here.

    Below it may lie the dead entries of millions of jobs, which no vacuum may remove while a
    transaction is open anywhere.
    """

    objects = RowManager()

    class Meta:
        base_manager_name = "objects"
        verbose_name = _("queue")
        verbose_name_plural = _("queues")
        ordering: ClassVar = ["instance", "name"]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["instance", "name"], name="hipq_queue_name_unique"),
            models.CheckConstraint(
                condition=models.Q(throttle_limit__lte=1_000_000), name="hipq_queue_limit_range"
            ),
            models.CheckConstraint(
                condition=models.Q(order__in=Order.values), name="hipq_queue_order_known"
            ),
            models.CheckConstraint(
                condition=_in_range(QUEUE["GRANULARITY_SECONDS"])
                & _in_range(QUEUE["AGEING_SECONDS"])
                & _in_range(DAYS),
                name="hipq_queue_numbers_range",
            ),
            models.CheckConstraint(
                condition=_in_range(DAYS, "retention_days_succeeded"),
                name="hipq_queue_succeeded_range",
            ),
            models.CheckConstraint(
                condition=models.Q(owed__gte=0)
                & (models.Q(share__isnull=True) | models.Q(share__gte=0)),
                name="hipq_queue_share_range",
            ),
        ]

    def __str__(self) -> str:
        return self.name if self.instance == "default" else f"{self.instance}.{self.name}"

    @property
    def ordering(self) -> Ordering:
        """How this queue ranks its jobs."""
        return _ordering(self.order, self.granularity_seconds, self.ageing_seconds)

    @property
    def is_ranked(self) -> bool:
        """Whether all waiting jobs have the ranks of this order; else workers are at it."""
        wanted = _ranking(self.order, self.granularity_seconds, self.ageing_seconds)
        return bool(self.ranking == wanted)

    def high_water_mark(self, now: datetime) -> int:
        """Return a rank that no due job exceeds: behind it an index scan may stop."""
        return self.ordering.high_water_mark(now) if self.is_ranked else MAX_RANK

    def first_future_rank(self, now: datetime) -> int:
        """Return a rank that every job of the future has at least."""
        return self.ordering.first_future_rank(now) if self.is_ranked else -MAX_RANK

    def low_water_mark_at(self, first_rank: int | None, now: datetime) -> int:
        """Return the low-water mark after a probe that found `first_rank` as the first due one.

        With a limit the order is strict: what was enqueued this moment is seen.
        """
        if self.is_limited or not self.is_ranked:
            return -MAX_RANK
        return self.ordering.low_water_mark(first_rank, now)

    @property
    def is_limited(self) -> bool:
        """Whether there is a throttle limit; below 1 is none."""
        return bool(self.throttle_limit >= 1)

    @property
    def own_limit(self) -> Decimal:
        """What may run in this database: the share of a shard, otherwise the whole limit."""
        return self.throttle_limit if self.share is None else self.share

    @cached_property
    def shard_count(self) -> int:
        """How many shards the queue is in."""
        is_sharded = get_instance(self.instance).is_sharded
        return verbs.count_of_shards(self) if is_sharded else 1
