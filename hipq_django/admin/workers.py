"""Workers: the processes that run the jobs or read messages."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet, Value
from django.http import HttpRequest
from django.utils.html import format_html_join
from django.utils.text import Truncator
from django.utils.translation import gettext, gettext_lazy as _

from hipq_django.admin.base import ReadOnlyAdmin, column
from hipq_django.admin.display import badge, span, when
from hipq_django.models import Job, Worker

TONES = {
    Worker.State.RUNNING: "running",
    Worker.State.STOPPING: "retry",
    Worker.State.STOPPED: "cancelled",
    Worker.State.LOST: "error",
}


@admin.register(Worker)
class WorkerAdmin(ReadOnlyAdmin):
    """Who is there and whose heart still beats."""

    list_display = (
        "name", "condition", "in_trouble", "instance", "served", "threads", "executing",
        "heartbeat", "started",
    )  # fmt: skip
    fields = list_display

    def get_queryset(self, request: HttpRequest) -> QuerySet[Worker]:
        """Return the workers; only who may view jobs sees the reasons of what is in trouble."""
        shows = Value(self.may_view(request, Job))
        workers: QuerySet[Worker] = super().get_queryset(request)
        return workers.annotate(shows_reasons=shows)

    @admin.display(description=_("state"))
    def condition(self, worker: Worker) -> str:
        """The state, or that the heartbeat stopped."""
        if worker.is_silent(self.now):
            return badge(gettext("silent"), "error")
        return badge(worker.get_state_display(), TONES.get(worker.state, "cancelled"))  # type: ignore[call-overload]  # the keys are states

    @admin.display(description=_("in trouble"))
    def in_trouble(self, worker: Any) -> str:
        """Which duties fail or hang, for how long, and why."""
        lines = (
            (
                badge(one.name, "error"),
                span(timedelta(seconds=one.seconds)),
                Truncator(one.reason).chars(300) if worker.shows_reasons else "",
            )
            for one in worker.troubles_at(self.now)
        )
        return format_html_join("", "<div>{} {} {}</div>", lines) or "-"

    @admin.display(description=_("serves"))
    def served(self, worker: Worker) -> str:
        """The queues that a worker serves, or the source that a consumer reads."""
        if worker.is_consumer:
            return _("reads %(source)s") % {"source": worker.source}
        return worker.queues_text

    heartbeat = column(
        _("last heartbeat"), lambda self, it: when(min(it.heartbeat_time, self.now), self.now)
    )
    started = column(_("started"), lambda self, worker: when(worker.create_time, self.now))
