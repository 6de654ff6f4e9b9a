"""What an operator does to jobs: run now, cancel, requeue; from the list and from a job's page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import path
from django.views.decorators.http import require_POST

from hipq_django.admin.base import HipqAdmin
from hipq_django.api import control, enqueueing
from hipq_django.domain.states import WAITING, State
from hipq_django.exceptions import HipqError
from hipq_django.models import Job

MAX_JOBS = 1_000
"""How many jobs one action takes: each is a transaction of its own, and a request is short."""

MAX_REFUSALS_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Verb:
    """One thing to do to a job: in which states, by which permission and function."""

    name: str
    label: str
    permission: str
    states: frozenset[State]
    perform: Callable[[Job], Job]
    done: str
    warning: str = ""
    is_of_use: Callable[[Job, datetime], bool] = lambda job, now: True
    """Whether it changes anything of a job in one of the states."""


def _is_put_off(job: Job, now: datetime) -> bool:
    return bool(job.time_windows) or job.scheduled_run_time > now


VERBS = {
    verb.name: verb
    for verb in (
        Verb(
            "run_now", "Run now", "run_job", frozenset(WAITING), control.run_now,
            done="Set to run now, its time windows dropped", is_of_use=_is_put_off,
        ),
        Verb(
            "requeue", "Requeue", "requeue_job", frozenset({State.FINAL}), enqueueing.requeue,
            done="Requeued",
        ),
        Verb(
            "cancel", "Cancel", "cancel_job", frozenset(State) - {State.FINAL}, control.cancel,
            done="Cancelled",
            warning="The job becomes final. A handler that is executing it is not stopped, but "
            "its result and any answer that still comes are not used.",
        ),
    )
}  # fmt: skip


class JobActions(HipqAdmin):
    """The actions of the list and the buttons of the page."""

    actions = tuple(VERBS)

    def has_run_job_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may run jobs now."""
        return self._may(request, VERBS["run_now"])

    def has_cancel_job_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may cancel jobs."""
        return self._may(request, VERBS["cancel"])

    def has_requeue_job_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may requeue final jobs."""
        return self._may(request, VERBS["requeue"])

    def _may(self, request: HttpRequest, verb: Verb) -> bool:
        permitted = request.user.has_perm(f"{self.opts.app_label}.{verb.permission}")
        return permitted and self.has_view_or_change_permission(request)

    # From the list

    @admin.action(permissions=["run_job"], description="Run the selected jobs now")
    def run_now(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Make waiting jobs due, without their time windows."""
        self._perform_each(request, queryset, VERBS["run_now"])

    @admin.action(permissions=["cancel_job"], description="Cancel the selected jobs")
    def cancel(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Make live jobs final."""
        self._perform_each(request, queryset, VERBS["cancel"])

    @admin.action(permissions=["requeue_job"], description="Requeue the selected final jobs")
    def requeue(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Create a fresh job from each final one."""
        self._perform_each(request, queryset, VERBS["requeue"])

    def _perform_each(self, request: HttpRequest, jobs: QuerySet[Any], verb: Verb) -> None:
        """Do it to each job on its own; what is refused does not stop the others."""
        ids = list(jobs.order_by("pk").values_list("pk", flat=True)[: MAX_JOBS + 1])
        if len(ids) > MAX_JOBS:
            text = f"Nothing was done: select at most {MAX_JOBS:,} jobs at a time."
            self.message_user(request, text, messages.ERROR)
            return
        refusals = [text for pk in ids if (text := self._refusal(request, pk, verb))]
        if done := len(ids) - len(refusals):
            plural = "job" if done == 1 else "jobs"
            self.message_user(request, f"{verb.done}: {done:,} {plural}.", messages.SUCCESS)
        self._report(request, refusals)

    def _refusal(self, request: HttpRequest, pk: int, verb: Verb) -> str:
        """Do it to one job; return why it was refused, '' where it was not."""
        try:
            job = self.get_queryset(request).get(pk=pk)
            if job.state in verb.states and not verb.is_of_use(job, self.now):
                return f"job {pk} was left as it is: it is due already, and has no time windows."
            self._perform(request, job, verb)
        except Job.DoesNotExist:
            return f"job {pk} does not exist any more; it was pruned."
        except HipqError as error:
            return f"job {pk}: {error}"
        return ""

    def _report(self, request: HttpRequest, refusals: Sequence[str]) -> None:
        for text in refusals[:MAX_REFUSALS_SHOWN]:
            self.message_user(request, text, messages.ERROR)
        more = len(refusals) - MAX_REFUSALS_SHOWN
        if more > 0:
            self.message_user(request, f"{more:,} more jobs were refused.", messages.ERROR)

    def _perform(self, request: HttpRequest, job: Job, verb: Verb) -> Job:
        """Do it and write it down in the history, both or neither; return the job it led to."""
        with transaction.atomic(using=self.database):
            result = verb.perform(job)
            fresh = result.pk != job.pk
            self.log_change(
                request, job, f"{verb.done} as job {result.pk}." if fresh else f"{verb.done}."
            )
            if fresh:
                self.log_addition(request, result, f"{verb.done} from job {job.pk}.")
        return result

    # From the page

    def buttons(self, request: HttpRequest, job: Job) -> list[dict[str, str]]:
        """Return what this user may do to this job now."""
        return [
            {
                "label": verb.label,
                "name": verb.name,
                "url": self.url(Job, verb.name, job.pk),
                "warning": verb.warning,
            }
            for verb in VERBS.values()
            if job.state in verb.states
            and verb.is_of_use(job, self.now)
            and self._may(request, verb)
        ]

    def get_urls(self) -> list[Any]:
        """Return the pages with one more address for each button."""
        names = f"{self.opts.app_label}_{self.opts.model_name}"
        own = [
            path(
                f"<path:object_id>/{verb.name}/",
                self.admin_site.admin_view(self._button_view(verb)),
                name=f"{names}_{verb.name}",
            )
            for verb in VERBS.values()
        ]
        return own + super().get_urls()

    def _button_view(self, verb: Verb) -> Callable[..., HttpResponse]:
        @require_POST
        def press(request: HttpRequest, object_id: str) -> HttpResponse:
            if not self._may(request, verb):
                raise PermissionDenied
            return self._press(request, object_id, verb)

        return press

    def _press(self, request: HttpRequest, object_id: str, verb: Verb) -> HttpResponse:
        job = self.get_object(request, object_id)
        if job is None:
            self.message_user(request, f"There is no job {object_id}.", messages.ERROR)
            return HttpResponseRedirect(self.url(Job, "changelist"))
        try:
            job = self._perform(request, job, verb)
        except HipqError as error:
            self.message_user(request, str(error), messages.ERROR)
        else:
            self.message_user(request, f"{verb.done}: {job}.", messages.SUCCESS)
        return HttpResponseRedirect(self.url(Job, "change", job.pk))
