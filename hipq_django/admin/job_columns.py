"""How a job's values are shown, in the list and on its page."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.utils.html import format_html_join

from hipq_django.admin.base import HipqAdmin, column
from hipq_django.admin.display import (
    NOTHING,
    age,
    badge,
    block,
    or_dash,
    plain,
    span,
    when,
    when_short,
    windows,
)
from hipq_django.admin.job_panel import progress_text, standing
from hipq_django.domain.states import NONE, WAITING, State
from hipq_django.models import Job, JobType, Queue


class JobColumns(HipqAdmin):
    """The columns of the list and the fields of the page, all of them read-only."""

    standing = column("state", lambda self, job: badge(*standing(job)))

    @admin.display(description="what")
    def note(self, job: Any) -> str:
        """What an operator asks first: since when, by whom, what went wrong."""
        if job.state in WAITING:
            return self._waiting_note(job)
        if job.state == State.RUNNING and job.is_awaiting_answer:
            done = f"{plain(job.progress)} % done, " if job.progress else ""
            return f"{done}times out {age(job.deadline, self.now)}"
        if job.state == State.RUNNING:
            return f"worker {job.worker}" if job.worker else "answer is in, for a worker to take"
        return _first_line(job.error_head)

    def _waiting_note(self, job: Any) -> str:
        moment = job.scheduled_run_time
        due = age(moment, self.now) if moment > self.now else f"for {span(self.now - moment)}"
        paused = ", queue paused" if job.queue.paused else ""
        error = _first_line(job.error_head)
        return f"due {due}{paused}" if error == NOTHING else f"due {due}{paused}, after {error}"

    @admin.display(description="scheduled")
    def scheduled_short(self, job: Job) -> str:
        """When the job is, or was, to run."""
        return when_short(job.scheduled_run_time, self.now)

    updated_short = column("updated", lambda self, job: when_short(job.update_time, self.now))

    # The page

    @admin.display(description="job type")
    def to_job_type(self, job: Job) -> str:
        """A link to the job type."""
        return self.link(JobType, job.job_type_id, job.job_type)

    to_queue = column("queue", lambda self, job: self.link(Queue, job.queue_id, job.queue))
    key = column("key", lambda self, job: or_dash(job.job_key))
    scheduled = column("scheduled", lambda self, job: when(job.scheduled_run_time, self.now))
    factor = column("throttle factor", lambda self, job: plain(job.throttle_factor))
    tries = column("attempt", lambda self, job: str(job.attempt or "none yet"))

    @admin.display(description="timeout")
    def time_limit(self, job: Job) -> str:
        """How long an attempt may take, and until when a running one may."""
        limit = f"{plain(job.timeout)} s for each attempt"
        if job.extended_seconds:
            limit = f"{limit}, {plain(round(job.extended_seconds, 3))} s more for this one"
        if job.state != State.RUNNING:
            return limit
        return f"{limit}; this attempt times out {age(job.deadline, self.now)}"

    done = column("progress", lambda self, job: progress_text(job) or NOTHING)

    windows = column(
        "time windows", lambda self, job: windows(job.time_windows, job.job_type.zone_name)
    )

    @admin.display(description="origin")
    def to_origin(self, job: Job) -> str:
        """The final job that this one was requeued from."""
        if job.origin_id is None:
            return NOTHING
        return self.link(Job, job.origin_id, f"job {job.origin_id}")

    @admin.display(description="requeued as")
    def to_successors(self, job: Job) -> str:
        """The jobs that were made of this one."""
        ids = job.successors.using(job.using).order_by("pk").values_list("pk", flat=True)[:5]
        links = ((self.link(Job, pk, f"job {pk}"),) for pk in ids)
        return format_html_join(", ", "{}", links) or NOTHING

    data = column("job data", lambda self, job: block(job.masked(job.job_data)))
    error_block = column("error", lambda self, job: block(job.masked(job.error)))
    result_block = column("result", lambda self, job: block(job.masked(job.result)))


def _first_line(error: str) -> str:
    """Return the first line of an error that was cut out of its JSON."""
    text = error.strip('"').partition("\\n")[0]
    return NOTHING if text == NONE else text
