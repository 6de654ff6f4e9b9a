"""Queues: what stands in each, what holds it, and what an operator edits while jobs run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.html import format_html_join
from django.utils.text import Truncator
from django.utils.translation import gettext, gettext_lazy as _, pgettext_lazy

from hipq_django.admin.base import column, silence_of
from hipq_django.admin.display import badge, format_number, plain, span
from hipq_django.admin.fields import EditForm, NumberField
from hipq_django.admin.row_actions import RowActions, Verb, by_name
from hipq_django.admin.shards import SHARD
from hipq_django.conf.instances import InstanceSettings, get_instance, get_instances
from hipq_django.conf.options import DAYS, QUEUE
from hipq_django.database import clock
from hipq_django.domain.states import NONE
from hipq_django.exceptions import ConfigurationError
from hipq_django.models import Job, Queue
from hipq_django.monitoring.counts import format_count, live_workers, with_figures
from hipq_django.monitoring.endings import Trends
from hipq_django.monitoring.overview import QueueCounts, queue_counts
from hipq_django.monitoring.shards import ShardState, look_at_shards
from hipq_django.sharing.limits import LimitNotChangedError, change_limit


class QueueForm(EditForm):
    """What of a queue may be edited."""

    throttle_limit = NumberField(
        QUEUE["THROTTLE_LIMIT"].checked,
        help_text=_("Highest sum of the factors of running jobs; 0 means no limit."),
    )
    granularity_seconds = NumberField(
        QUEUE["GRANULARITY_SECONDS"].checked,
        help_text=_(
            "In the order by scheduled time: times within the same span count as equal, and "
            "priority decides."
        ),
    )
    ageing_seconds = NumberField(
        QUEUE["AGEING_SECONDS"].checked,
        help_text=_(
            "With ageing priority: by how many seconds each better point of priority moves a job "
            "forward."
        ),
    )
    retention_days = NumberField(
        DAYS.checked,
        help_text=_("How long final jobs are kept."),
    )
    retention_days_succeeded = NumberField(
        lambda value: None if value == "" else DAYS.checked(value, "retention_days_succeeded"),
        required=False,
        help_text=_("How long jobs that succeeded are kept; empty: as long as the others."),
    )

    @property
    def edited(self) -> dict[str, Any]:
        """The values to write; the limit of a sharded queue is written already, in all shards."""
        done = ("throttle_limit",) if _sharded(self.instance) else ()
        return {name: value for name, value in super().edited.items() if name not in done}

    def clean(self) -> dict[str, Any]:
        """Change the limit of a sharded queue in all shards, once all else is found right."""
        values, config = super().clean(), _sharded(self.instance)
        if self.errors or config is None or "throttle_limit" not in self.changed_data:
            return values
        try:
            change_limit(config, self.instance.name, values["throttle_limit"])
        except LimitNotChangedError as error:
            self.add_error("throttle_limit", str(error))
        return values


def _sharded(queue: Queue) -> InstanceSettings | None:
    """Return the instance of a queue, if it is sharded."""
    found = (config for config in get_instances() if config.is_sharded)
    return next((config for config in found if config.name == queue.instance), None)


VERBS = by_name(
    Verb(
        "pause", _("Pause"), "change_queue", lambda queue: _set_paused(queue, True),
        done=_("Paused"),
        action=_("Pause the selected queues"),
        is_of_use=lambda queue, now: not queue.paused,
        useless=_("it is paused already."),
        is_locked=True,
    ),
    Verb(
        "resume", _("Resume"), "change_queue", lambda queue: _set_paused(queue, False),
        done=_("Resumed"),
        action=_("Resume the selected queues"),
        is_of_use=lambda queue, now: queue.paused,
        useless=_("it is not paused."),
        is_locked=True,
    ),
)  # fmt: skip


def _set_paused(queue: Queue, paused: bool) -> None:
    rows = Queue.objects.using(queue.using).filter(pk=queue.pk)
    rows.update(paused=paused, update_time=clock.now(queue.using))


NOW = (
    "condition", "due", "oldest_due", "waiting", "running", "in_error", "load", "lately"
)  # fmt: skip
"""What the page of a queue shows of it, and nobody edits."""
OTHER = (
    "retention_days", "retention_days_succeeded", "instance", "name", "created", "updated"
)  # fmt: skip


@admin.register(Queue)
class QueueAdmin(RowActions):
    """The first page to look at: every queue with what stands in it and what holds it."""

    form = QueueForm
    change_form_template = "hipq_django/admin/queue.html"
    list_display = (
        "__str__", "condition", "due", "oldest_due", "waiting", "running", "in_error", "load",
        "lately", "order",
    )  # fmt: skip
    actions = tuple(VERBS)
    verbs = VERBS
    fieldsets = (
        (_("Now"), {"fields": NOW}),
        (_("Limits"), {"fields": ("paused", "throttle_limit", "throttlers")}),
        (_("Order"), {"fields": ("order", "granularity_seconds", "ageing_seconds")}),
        (_("Other"), {"fields": OTHER}),
    )
    readonly_fields = (*NOW, "throttlers", "instance", "name", "created", "updated")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the queues with what stands in them, in one query."""
        return with_figures(super().get_queryset(request), self.now)

    def prepare(self, request: HttpRequest, rows: Sequence[Any]) -> None:
        """Give queues the counts that the rules about them judge."""
        workers, shows_problem = live_workers(self.database), self.may_view(request, Job)
        trends = Trends(rows, self.now, self.database)
        for queue in rows:
            queue.shows_problem = shows_problem
            queue.counts = queue_counts(queue, self.now, trends, workers)
            queue.trend = queue.counts.trend

    # What stands in a queue

    @admin.display(description=_("condition"))
    def condition(self, queue: Any) -> str:
        """What holds the queue, if anything does."""
        found = list(self._problems(queue)) or [badge(gettext("ok"), "succeeded")]
        return format_html_join(" ", "{}", ((problem,) for problem in found))

    def _problems(self, queue: Any) -> Iterator[str]:
        if queue.paused:
            yield badge(gettext("paused"), "retry")
        if queue.counts.problem != NONE:
            yield badge(gettext("blocked"), "error")
            yield self._problem(queue)
        if not queue.is_ranked:
            yield badge(gettext("changing order"), "retry")
        counts: QueueCounts = queue.counts
        if not counts.served:
            yield badge(gettext("no worker"), "error")
        if counts.is_full:
            yield badge(gettext("limit reached"), "retry")
        yield from self.trend_badges(counts.trend, is_unanswered=counts.is_unanswered)

    def _problem(self, queue: Any) -> str:
        """Return why a throttler blocks the queue; it may quote what it was told of the jobs."""
        if not getattr(queue, "shows_problem", False):
            return gettext("by a throttler; users who may view jobs see the reason")
        return Truncator(queue.throttler_problem).chars(300)

    due = column(_("due, not started"), lambda self, queue: self._count(queue, "due"))

    @admin.display(description=_("oldest due for"))
    def oldest_due(self, queue: Any) -> str:
        """How long the longest waiting due job has been due."""
        return span(self.now - queue.oldest_due) if queue.oldest_due else "-"

    waiting = column(_("waiting"), lambda self, queue: self._count(queue, "waiting"))
    running = column(
        pgettext_lazy("number of jobs", "running"),
        lambda self, queue: self._count(queue, "running"),
    )
    in_error = column(_("in error"), lambda self, queue: self._count(queue, "error"))

    def _count(self, queue: Any, state: str) -> str:
        number = getattr(queue, f"{state}_count")
        if not number:
            return "0"
        text = format_count(number, format_number)
        return self.list_link(Job, text, {"queue": queue.pk, "state": state})

    lately = column(_("in the last hour"), lambda self, queue: self.endings(queue, "queue"))

    @admin.display(description=_("load"))
    def load(self, queue: Any) -> str:
        """The sum of the factors that run, and the limit; of a shard its share."""
        text = _("%(load)s of %(limit)s") if queue.is_limited else _("%(load)s, no limit")
        return text % {"load": plain(queue.load or 0), "limit": plain(queue.own_limit)}

    @admin.display(description=_("throttlers"))
    def throttlers(self, queue: Any) -> str:
        """The throttlers that the setting names."""
        try:
            paths = get_instance(queue.instance).queue(queue.name).throttlers
        except ConfigurationError as error:
            return str(error)
        return ", ".join(paths) or gettext("none")

    # What shards have of it

    def beside_form(self, request: HttpRequest, row: Queue) -> dict[str, Any]:
        """Return what there is to see of each shard."""
        config = _sharded(row)
        states = look_at_shards(config, name=row.name).shards if config else ()
        shown = super().beside_form(request, row)
        return {**shown, "shard_rows": [self._in_shard(state) for state in states]}

    def _in_shard(self, state: ShardState) -> dict[str, str]:
        link = self.list_link(Queue, state.shard.alias, {SHARD: state.shard.number})
        problem = silence_of(state.shard) if state.is_silent else state.problem
        line = {"link": link, "problem": problem}
        for queue in state.queues:  # none in a shard that no job has come to
            share = queue.throttle_limit if queue.share is None else queue.share
            line["due"] = format_count(queue.due, format_number)
            line |= {"running": plain(queue.running), "share": plain(share)}
            line["owed"] = plain(queue.owed)
        return line

    # What an operator does

    def form_page(self, request: HttpRequest, object_id: str | None, *more: Any) -> Any:
        """Open no transaction where there are shards: each commits a changed limit by itself."""
        if self.shard is None:
            return super().form_page(request, object_id, *more)
        return self._changeform_view(request, object_id, *more)  # type: ignore[attr-defined]  # not in the stubs

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Write the edited fields; the workers bring the waiting jobs into a changed order."""
        self.save_changes(obj, form)
        if not obj.is_ranked:
            text = _(
                "The workers are bringing the waiting jobs of queue %(queue)s into the new order."
            )
            self.message_user(request, text % {"queue": obj})
