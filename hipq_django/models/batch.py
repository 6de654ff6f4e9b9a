"""Batches: jobs that belong together, and are followed by others once all have ended."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar

from asgiref.sync import sync_to_async
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from hipq_django.domain.states import NONE
from hipq_django.models import verbs
from hipq_django.models.base import Row, RowManager

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from django.db.models.fields.related_descriptors import RelatedManager

    from hipq_django.domain.drafts import NewJob, OnConflict
    from hipq_django.models.job import Job

MAX_BATCH_NAME_CHARS = 200


class Batch(Row):
    """A name for the jobs that have it. What becomes of it is read from their states."""

    instance = models.CharField(_("instance"), max_length=100, default="default")
    name = models.CharField(_("name"), max_length=MAX_BATCH_NAME_CHARS, default=NONE)
    create_time = models.DateTimeField(_("create time"), default=timezone.now, editable=False)

    objects = RowManager()

    open_in: int | None = None
    """The thread of its `with hipq.batch(…)`, until that ends: only there is its transaction."""

    shard_key: str | None = None
    """What its `with` block says of the shard, and of that of its jobs."""

    collected: list[Callable[[Batch], object]] | None = None
    """What an `async with hipq.abatch(…)` enqueues when it ends."""

    if TYPE_CHECKING:
        jobs: RelatedManager[Job]

    class Meta:
        base_manager_name = "objects"
        verbose_name = _("batch")
        verbose_name_plural = _("batches")
        permissions: ClassVar = [("cancel_batch", "Can cancel batches")]

    def __str__(self) -> str:
        return f"batch {self.pk}" if self.name == NONE else f"batch {self.pk} ({self.name})"

    def enqueue(self, new: NewJob, *, on_conflict: OnConflict | None = None) -> Job:
        """Enqueue a job of this batch; return it.

        Inside `with hipq.batch(…)`, and in the code of its jobs. Raise `InvalidJobError` elsewhere.
        `on_conflict` is that of `hipq_django.enqueue`: of a unique job the one is returned that is
        there, if it is in this batch.
        """
        return verbs.add(self, new, on_conflict)

    def enqueue_many(
        self, jobs: Iterable[NewJob], *, on_conflict: OnConflict = "raise"
    ) -> list[Job]:
        """Enqueue jobs of this batch, all or none, as `hipq_django.enqueue_many` does."""
        return verbs.add_many(self, jobs, on_conflict)

    async def aenqueue(self, new: NewJob, *, on_conflict: OnConflict | None = None) -> Job | None:
        """Enqueue in async code. Inside `hipq.abatch` the job is enqueued at its end: None."""
        if self.collected is None:
            return await sync_to_async(self.enqueue)(new, on_conflict=on_conflict)
        given = verbs.as_given(new)
        self.collected.append(partial(verbs.add, new=given, on_conflict=on_conflict))
        return None

    async def aenqueue_many(
        self, jobs: Iterable[NewJob], *, on_conflict: OnConflict = "raise"
    ) -> list[Job]:
        """Enqueue many in async code; inside `hipq.abatch` at its end: an empty list."""
        if self.collected is None:
            return await sync_to_async(self.enqueue_many)(jobs, on_conflict=on_conflict)
        given = [verbs.as_given(new) for new in jobs]
        self.collected.append(partial(verbs.add_many, jobs=given, on_conflict=on_conflict))
        return []
