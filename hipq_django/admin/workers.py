"""Workers: the processes that run the jobs or read messages."""

from __future__ import annotations

from django.contrib import admin

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

    @admin.display(description="state")
    def condition(self, worker: Worker) -> str:
        """The state, or that the heartbeat stopped."""
        if worker.is_silent(self.now):
            return badge("silent", "error")
        # For mypy: the keys are states.
        return badge(worker.state, TONES.get(worker.state, "cancelled"))  # type: ignore[call-overload]

    @admin.display(description="serves")
    def served(self, worker: Worker) -> str:
        """The queues that a worker serves, or the source that a consumer reads."""
        if worker.is_consumer:
            return f"reads {worker.source}"
        return worker.queues_text

    heartbeat = column("last heartbeat", lambda self, worker: when(worker.heartbeat_time, self.now))
    started = column("started", lambda self, worker: when(worker.create_time, self.now))
