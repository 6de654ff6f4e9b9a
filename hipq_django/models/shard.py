"""Shards: which one a database is, and what it has sent to others of the limits of its queues."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import F, Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from hipq_django.domain.sharding import MAX_SHARDS
from hipq_django.models.base import Row, RowKey, RowManager
from hipq_django.models.queue import Queue


class ShardMap(Row):
    """What a database knows of the shards of an instance; without a row it is shard 0 of 1.

    While `count_before` is less than `count`, jobs may still be where their keys were before.
    Above `first_id` the ids of all tables name their shard; up to it they are from shard 0.
    """

    instance = models.CharField(_("instance"), max_length=100, unique=True)
    number = models.SmallIntegerField(_("number"))
    count = models.SmallIntegerField(_("count"))
    count_before = models.SmallIntegerField(_("count before"))
    first_id = models.BigIntegerField(_("first id"))
    create_time = models.DateTimeField(_("create time"), default=timezone.now)

    objects = RowManager()

    class Meta:
        base_manager_name = "objects"
        db_table = "hipq_shard"
        verbose_name = _("shard map")
        verbose_name_plural = _("shard maps")
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(number__gte=0, number__lt=F("count"), count__lte=MAX_SHARDS)
                & Q(count_before__gte=1, count_before__lte=F("count"), first_id__gte=0),
                name="hipq_shard_ranges",
            ),
        ]

    def __str__(self) -> str:
        return f"shard {self.number} of {self.count} of {self.instance}"


def count_of_shards(queue: Queue) -> int:
    """Return how many shards a queue is in, as its own database says."""
    rows = ShardMap.objects.using(queue.using).filter(instance=queue.instance)
    return rows.values_list("count", flat=True).first() or 1


class Transfer(Row):
    """What a queue of this shard has sent to, and received from, another shard; it only grows."""

    queue = RowKey(
        Queue, models.CASCADE, verbose_name=_("queue"), related_name="transfers", db_index=False
    )
    peer = models.SmallIntegerField(_("peer"))
    sent = models.DecimalField(_("sent"), max_digits=20, decimal_places=3, default=0, db_default=0)
    received = models.DecimalField(
        _("received"), max_digits=20, decimal_places=3, default=0, db_default=0
    )

    objects = RowManager()

    class Meta:
        base_manager_name = "objects"
        verbose_name = _("transfer")
        verbose_name_plural = _("transfers")
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["queue", "peer"], name="hipq_transfer_peer_unique"),
            models.CheckConstraint(
                condition=Q(peer__gte=0, peer__lt=MAX_SHARDS, sent__gte=0, received__gte=0),
                name="hipq_transfer_ranges",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.queue} and shard {self.peer}: {self.sent} sent, {self.received} received"
