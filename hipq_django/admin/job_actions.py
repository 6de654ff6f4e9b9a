"""What an operator does to jobs: run now, cancel, requeue; from the list and from a job's page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.db.models import Exists, OuterRef, Q
from django.http import HttpRequest
from django.utils.translation import gettext, gettext_lazy as _

from hipq_django.admin.row_actions import RowActions, Verb, VerbForm, by_name, tick_box
from hipq_django.api import control, requeueing
from hipq_django.domain.states import WAITING
from hipq_django.models import Job

if TYPE_CHECKING:
    from django.utils.functional import _StrOrPromise


def _is_put_off(job: Job, now: datetime) -> bool:
    return bool(job.time_windows) or job.scheduled_run_time > now


def _put_off(jobs: Any, now: datetime) -> Any:
    return jobs.waiting().filter(Q(scheduled_run_time__gt=now) | ~Q(time_windows=[]))


def _to_requeue(jobs: Any, now: datetime) -> Any:
    """Leave out the jobs that were requeued: they would stay the first for ever."""
    others = Job.objects.using(jobs.db)
    return jobs.final().filter(~Exists(others.filter(origin=OuterRef("pk"))))


def _drops_links(job: Job) -> _StrOrPromise:
    """Return what is lost where a job that waits for others is to run now."""
    if job.hold_time is None:
        return ""
    return _(
        "The job waits until other jobs have ended. If it is to run now, it does not follow them "
        "any more: it starts without what they do, and their failure does not cancel it."
    )


def _was_requeued(job: Job) -> _StrOrPromise:
    """Return what is there already of a job that was requeued before."""
    ids = list(job.successors.using(job.using).order_by("-pk").values_list("pk", flat=True)[:1])
    if not ids:
        return ""
    text = _("It was requeued already, the last time as job %(id)s. It would run once more.")
    return text % {"id": ids[0]}


def _said_of_requeue(job: Job) -> str:
    """Return what is to be known before a job is requeued."""
    return " ".join(str(said) for said in (_was_requeued(job), _runs_without(job)) if said)


def _runs_without(job: Job) -> _StrOrPromise:
    """Return what a new job lacks that the old one was to follow."""
    if not requeueing.runs_without(job):
        return ""
    return _(
        "Jobs that it was to follow did not succeed, or do not exist any more. It would run "
        "without their results, unless they are requeued before it."
    )


def _becomes_final(job: Job) -> _StrOrPromise:
    """Return what cancelling does to the job itself."""
    if job.is_final:
        return _("The job has ended, and stays as it is.")
    return _(
        "The job becomes final. A handler that is executing it is not stopped, but its "
        "result and any answer that still comes are not used. The other system is not told, and "
        "may still do the work."
    )


def _has_enqueued(job: Job) -> bool:
    """Whether there are jobs that may have to be cancelled with it, or after it has ended."""
    if not job.attempt:
        return False  # it has never run
    children = Job.objects.using(job.using).filter(parent=job)
    return (children.live() if job.is_final else children).exists()


class RequeueForm(VerbForm):
    """Whether the jobs that were cancelled with it are requeued, too."""

    dependents = tick_box(_("Also requeue all jobs that were cancelled because it did not succeed"))

    def offer(self, rows: Sequence[Job]) -> None:
        """Leave it out where no job was cancelled with any of these."""
        if not any(map(requeueing.has_taken_down, rows)):
            del self.fields["dependents"]

    @property
    def done(self) -> _StrOrPromise:
        """What was done, if that was ticked."""
        return _("Requeued with its dependents") if self.options.get("dependents") else ""


class CancelForm(VerbForm):
    """Whether the jobs that it has enqueued are cancelled, too."""

    descendants = tick_box(
        _("Cancel all live jobs that it has enqueued, and those that these have enqueued in turn")
    )

    def offer(self, rows: Sequence[Job]) -> None:
        """Leave it out where there is none; of jobs that have ended it is all that can be done."""
        parents = [job for job in rows if _has_enqueued(job)]
        if not parents:
            del self.fields["descendants"]
        self.initial["descendants"] = all(job.is_final for job in parents)

    @property
    def done(self) -> _StrOrPromise:
        """What was done, if that was ticked."""
        return "" if self.is_atomic else _("Cancelled with its descendants")

    @property
    def is_atomic(self) -> bool:
        """Whether it is one transaction: not with any number of descendants."""
        return not self.options.get("descendants")


VERBS = by_name(
    Verb(
        "run_now", _("Run now"), "run_job", control.run_now,
        done=_("Set to run now, its time windows dropped"),
        action=_("Run the selected jobs now"),
        is_possible=lambda job: job.state in WAITING,
        is_of_use=_is_put_off,
        among=_put_off,
        useless=_("it is due already, and has no time windows."),
        warning=_drops_links,
        confirm=_("Run it without waiting for them"),
        is_dangerous=True,
    ),
    Verb(
        "requeue", _("Requeue"), "requeue_job", requeueing.requeue, done=_("Requeued"),
        action=_("Requeue the selected final jobs"),
        is_possible=lambda job: job.is_final,
        among=_to_requeue,
        is_locked=True,
        warning=_said_of_requeue,
        form=RequeueForm,
    ),
    Verb(
        "cancel", _("Cancel"), "cancel_job", control.cancel, done=_("Cancelled"),
        action=_("Cancel the selected jobs"),
        is_possible=lambda job: not job.is_final or _has_enqueued(job),
        among=lambda jobs, now: jobs.live(),
        confirm=_("Cancel this job"),
        warning=_becomes_final,
        form=CancelForm,
        is_dangerous=True,
    ),
)  # fmt: skip


class JobActions(RowActions):
    """The actions of the list and the buttons of the page."""

    actions = tuple(VERBS)
    verbs = VERBS

    def said(self, verb: Verb, before: Job, result: Job) -> str:
        """Return what was done; of a job that waited for others, that it does not any more."""
        if verb.name == "run_now" and before.hold_time is not None:
            return gettext("Set to run now, its time windows and its wait for other jobs dropped")
        return super().said(verb, before, result)

    def write_down(self, request: HttpRequest, row: Job, result: Job, said: str) -> None:
        """Write it down with both jobs, where it led to a fresh one."""
        if result.pk == row.pk:
            super().write_down(request, row, result, said)
            return
        self.log_change(request, row, f"{said} as job {result.pk}.")
        self.log_addition(request, result, f"{said} from job {row.pk}.")

    def target(self, row: Job, result: Job) -> Job:
        """Return the job that it led to."""
        return result
