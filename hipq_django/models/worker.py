"""Workers: the running processes and their heartbeats."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import ClassVar, NamedTuple

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy as _

from hipq_django.conf.instances import LOST_AFTER_BEATS
from hipq_django.domain.states import NONE
from hipq_django.models.base import JsonField, Row, RowManager
from hipq_django.models.queue import Queue


class Trouble(NamedTuple):
    """A duty, or another part of a worker, that fails or hangs; for how long, and why."""

    name: str
    seconds: float
    reason: str


class Worker(Row):
    """A process that runs jobs, or one that reads messages.

    `lost` means that its heartbeat stopped and its jobs were taken over.
    """

    class State(models.TextChoices):
        """Where the process stands."""

        RUNNING = "running", _("running")
        STOPPING = "stopping", _("stopping")
        STOPPED = "stopped", _("stopped")
        LOST = "lost", _("lost")

    LIVE = (State.RUNNING, State.STOPPING)

    HELD = "threads"
    """The name of the trouble that jobs whose attempts are over hold threads."""

    instance = models.CharField(_("instance"), max_length=100, default="default")
    name = models.CharField(_("name"), max_length=200)
    queues = JsonField(
        _("queues"), default=list, help_text=_("Names of the queues served; empty: all.")
    )
    excluded_queues = JsonField(
        _("excluded queues"),
        default=list,
        help_text=_("Names of queues that are not served, while all others are."),
    )
    source = models.CharField(
        _("source"),
        max_length=100,
        default=NONE,
        help_text=_("The source that a consumer reads messages from; a worker has none."),
    )
    threads = models.PositiveIntegerField(_("threads"), default=1)
    state = models.CharField(
        _("state"), max_length=10, choices=State.choices, default=State.RUNNING
    )
    heartbeat_seconds = models.FloatField(_("heartbeat seconds"), default=10)
    heartbeat_time = models.DateTimeField(_("heartbeat time"), default=timezone.now)
    executing = models.PositiveIntegerField(
        _("executing"), default=0, help_text=_("Jobs or messages in flight at the last beat.")
    )
    troubles = JsonField(
        _("troubles"),
        default=dict,
        help_text=_("What failed or hung at the last beat, since when, and why."),
    )
    # NULL: a worker of a release that did not write it.
    schedules = JsonField(_("schedules"), default=list, null=True)
    """The names of the schedules that its code declares."""
    create_time = models.DateTimeField(_("create time"), default=timezone.now)

    objects = RowManager()

    class Meta:
        base_manager_name = "objects"
        verbose_name = _("worker")
        verbose_name_plural = _("workers")
        ordering: ClassVar = ["-id"]
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=models.Q(state__in=["running", "stopping", "stopped", "lost"]),
                name="hipq_worker_state_known",
            )
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def is_consumer(self) -> bool:
        """Whether it reads messages and serves no queue."""
        return self.source != NONE

    @property
    def silence(self) -> timedelta:
        """How long a silence makes it count as lost."""
        return timedelta(seconds=LOST_AFTER_BEATS * self.heartbeat_seconds)

    def is_silent(self, now: datetime) -> bool:
        """Whether a worker that did not end missed so many heartbeats that it counts as lost."""
        return self.state in self.LIVE and now - self.heartbeat_time > self.silence

    def live_row(self) -> models.QuerySet[Worker]:
        """Return its row if that is live, whatever this copy says."""
        return Worker.objects.using(self.using).filter(pk=self.pk, state__in=self.LIVE)

    def is_live(self) -> models.Exists:
        """Return the condition of a statement that the row is live."""
        return models.Exists(self.live_row())

    def serves(self, queue: Queue) -> bool:
        """Whether it claims jobs of a queue, as long as it runs."""
        is_its_own = self.instance == queue.instance and self.is_for(queue.name)
        return is_its_own and not self.is_consumer

    def troubles_at(self, now: datetime) -> list[Trouble]:
        """Return what is in trouble in a process that has not ended."""
        found = self.troubles if self.state in self.LIVE else {}
        ages = {name: now - datetime.fromisoformat(one["since"]) for name, one in found.items()}
        return [
            Trouble(name, age.total_seconds(), found[name]["reason"]) for name, age in ages.items()
        ]

    @property
    def is_held(self) -> bool:
        """Whether jobs whose attempts are over hold all its threads, so that nothing else runs."""
        return bool(self.troubles.get(self.HELD, {}).get("held", 0) >= self.threads)

    def is_for(self, name: str) -> bool:
        """Whether it was started for the queue of this name, which may not be there yet."""
        return name in self.queues if self.queues else name not in self.excluded_queues

    @property
    def queues_text(self) -> str:
        """What it was started for: "bank, exports", "all", or "all but reports"."""
        return describe_queues(self.queues, self.excluded_queues)


def describe_queues(queues: Sequence[str], excluded: Sequence[str]) -> str:
    """Return in words, of the active language, which queues a worker serves."""
    if queues:
        return ", ".join(queues)
    if not excluded:
        return gettext("all")
    return gettext("all but %(queues)s") % {"queues": ", ".join(excluded)}
