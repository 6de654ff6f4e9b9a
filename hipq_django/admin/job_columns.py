"""How a job's values are shown, in the list and on its page."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext, gettext_lazy as _

from hipq_django.admin.base import HipqAdmin, column
from hipq_django.admin.display import (
    NOTHING,
    age,
    badge,
    block,
    or_dash,
    plain,
    read_head,
    span,
    when,
    when_short,
    windows,
)
from hipq_django.admin.job_edit import wanted_time
from hipq_django.admin.job_panel import standing
from hipq_django.domain.states import NONE, WAITING, State
from hipq_django.models import Job, JobType, Queue, Worker
from hipq_django.models.masking import shown


class JobColumns(HipqAdmin):
    """The columns of the list and the fields of the page, all of them read-only."""

    standing = column(_("state"), lambda self, job: badge(*standing(job)))

    @admin.display(description=_("details"))
    def note(self, job: Any) -> str:
        """What an operator asks first: since when, by whom, what went wrong."""
        if job.state in WAITING:
            return self._waiting_note(job)
        if job.state == State.RUNNING and job.is_awaiting_answer:
            return self._deadline_note(job)
        if job.state == State.RUNNING and job.worker:
            return _("worker %(worker)s") % {"worker": job.worker}
        if job.state == State.RUNNING:
            return gettext("answer has come; a worker will process it")
        return self._final_note(job)

    def _deadline_note(self, job: Any) -> str:
        now = self.now
        is_over = job.deadline <= now  # and no worker has timed the attempt out yet
        text = _("was due %(age)s") if is_over else _("times out %(age)s")
        said = text % {"age": age(job.deadline, now)}
        if not job.progress:
            return said
        done = _("%(percent)s %% done, %(deadline)s")
        return done % {"percent": plain(job.progress), "deadline": said}

    def _final_note(self, job: Any) -> str:
        error = _first_line(job.error_head)
        if job.requeued_as is None:
            return error
        again = format_html("{} {}", gettext("requeued as"), self.job_link(job.requeued_as))
        return again if error == NOTHING else format_html("{}, {}", again, error)

    def _waiting_note(self, job: Any) -> str:
        moment = job.scheduled_run_time
        if job.hold_time is not None:
            parts = [gettext("waits for other jobs")]
        elif moment > self.now:
            parts = [_("due %(age)s") % {"age": age(moment, self.now)}]
        else:
            parts = [_("due for %(span)s") % {"span": span(self.now - moment)}]
        if job.queue.paused:
            parts.append(gettext("queue paused"))
        error = _first_line(job.error_head)
        if error != NOTHING:
            parts.append(_("after %(error)s") % {"error": error})
        return ", ".join(parts)

    scheduled_short = column(
        _("scheduled"), lambda self, job: when_short(wanted_time(job), self.now)
    )
    updated_short = column(_("updated"), lambda self, job: when_short(job.update_time, self.now))

    # The page

    to_job_type = column(
        _("job type"), lambda self, job: self.link(JobType, job.job_type_id, job.job_type)
    )
    to_queue = column(_("queue"), lambda self, job: self.link(Queue, job.queue_id, job.queue))
    key = column(_("key"), lambda self, job: or_dash(job.job_key))
    scheduled = column(_("scheduled"), lambda self, job: when(wanted_time(job), self.now))
    factor = column(_("throttle factor"), lambda self, job: plain(job.throttle_factor))
    tries = column(_("attempt"), lambda self, job: str(job.attempt or gettext("none yet")))

    @admin.display(description=_("timeout"))
    def time_limit(self, job: Job) -> str:
        """How long an attempt may take, and until when a running one may."""
        parts = [_("%(seconds)s s for each attempt") % {"seconds": plain(job.timeout)}]
        if job.extended_seconds:
            more = plain(round(job.extended_seconds, 3))
            parts.append(_("%(seconds)s s more for this one") % {"seconds": more})
        limit = ", ".join(parts)
        if job.state != State.RUNNING:
            return limit
        now = self.now
        text = _("%(limit)s; this attempt times out %(age)s")
        if job.deadline <= now:
            text = _("%(limit)s; this attempt was due %(age)s")
        return text % {"limit": limit, "age": age(job.deadline, now)}

    windows = column(
        _("time windows"), lambda self, job: windows(job.time_windows, job.job_type.zone_name)
    )

    to_worker = column(
        _("worker"),
        lambda self, job: self.link(Worker, job.worker_id, job.worker) if job.worker else NOTHING,
    )

    @admin.display(description=_("job data"))
    def data(self, job: Job) -> str:
        """What the handler is given; of a task its arguments by name."""
        data = shown(job, job.job_data)
        if not (job.job_type.signature and isinstance(data, dict) and data):
            return block(data)
        rows = ((name, block(value) if value != "" else '""') for name, value in data.items())
        body = format_html_join("", '<tr><th scope="row">{}</th><td>{}</td></tr>', rows)
        return format_html('<table class="hipq-facts">{}</table>', body)

    error_block = column(_("error"), lambda self, job: block(shown(job, job.error)))
    result_block = column(_("result"), lambda self, job: block(shown(job, job.result)))


def _first_line(error: str) -> str:
    """Return the first line of an error, of which the head of its JSON is given."""
    text = read_head(error).partition("\n")[0]
    return NOTHING if text == NONE else text
