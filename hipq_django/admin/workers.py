"""Workers: the processes that run the jobs or read messages."""

from __future__ import annotations

from django.contrib import admin
from django.utils.translation import gettext, gettext_lazy as _

from hipq_django.admin.base import ReadOnlyAdmin, column
from hipq_django.admin.display import badge, when
from hipq_django.models import Worker

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
        "name", "condition", "instance", "served", "threads", "executing", "heartbeat", "started",
    )  # fmt: skip
    fields = list_display

    @admin.display(description=_("state"))
    def condition(self, worker: Worker) -> str:
        """The state, or that the heartbeat stopped."""
        if worker.is_silent(self.now):
            return badge(gettext("silent"), "error")
        return badge(worker.get_state_display(), TONES.get(worker.state, "cancelled"))  # type: ignore[call-overload]  # the keys are states

    @admin.display(description=_("serves"))
    def served(self, worker: Worker) -> str:
        """The queues that a worker serves, or the source that a consumer reads."""
        if worker.is_consumer:
            return _("reads %(source)s") % {"source": worker.source}
        return worker.queues_text

    heartbeat = column(
        _("last heartbeat"), lambda self, worker: when(worker.heartbeat_time, self.now)
    )
    started = column(_("started"), lambda self, worker: when(worker.create_time, self.now))
