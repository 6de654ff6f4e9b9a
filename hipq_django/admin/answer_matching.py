"""Matching an answer to a job by hand: look at both, then press."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext, gettext_lazy as _

from hipq_django.admin.answer_values import name_of
from hipq_django.admin.display import badge, block, or_dash, when
from hipq_django.admin.job_panel import standing
from hipq_django.admin.row_actions import RowActions, Verb, VerbForm
from hipq_django.answers import api
from hipq_django.answers.classification import refusal
from hipq_django.domain.validation import MAX_ID
from hipq_django.exceptions import InvalidAnswerError
from hipq_django.models import Answer, Job
from hipq_django.models.base import title
from hipq_django.models.masking import shown


class JobIdForm(VerbForm):
    """The job that an answer belongs to; it is shown before the answer is matched to it."""

    is_filled_in = True
    field = "job"
    job = forms.IntegerField(
        min_value=1,
        max_value=MAX_ID,
        label=_("Job id"),
        help_text=_("The job is shown first, so that you can compare both."),
    )
    seen = forms.IntegerField(widget=forms.HiddenInput, required=False)

    def is_valid(self) -> bool:
        """Return whether this very job was shown."""
        return super().is_valid() and self.cleaned_data["job"] == self.cleaned_data["seen"]

    def show(self) -> None:
        """Let the page, which shows the job now, say so when it is sent again."""
        pk = self.cleaned_data["job"]
        self.data = {"job": pk, "seen": pk}


MATCH = Verb(
    "match", _("Match"), "match_answer", api.assign,
    done=_("Matched"),
    is_possible=lambda answer: answer.is_free,
    warning=lambda answer: _(
        "The job takes the answer as if it had just come: a response settles it, an error fails "
        "its attempt. This cannot be undone."
    ),
    form=JobIdForm,
)  # fmt: skip


class AnswerMatching(RowActions):
    """An operator matches an answer that no job has, on a page of its own."""

    verbs = {MATCH.name: MATCH}
    asks_on_page = False
    names_all = True
    confirm_template = "hipq_django/admin/match_answer.html"

    def may_do(self, request: HttpRequest, name: str) -> bool:
        """Return whether the user may match answers to jobs, both of which the page shows."""
        return super().may_do(request, name) and self.may_view(request, Job)

    def said(self, verb: Verb, before: Answer, result: Answer) -> str:
        """Return to which job it was matched, and what became of it."""
        values = {"status": name_of(result.status), "job": title(result.job) if result.job else ""}
        return gettext("Matched to %(job)s, and %(status)s") % values

    def write_down(self, request: HttpRequest, row: Answer, result: Answer, said: str) -> None:
        """Write it down in both histories."""
        self.log_change(request, row, f"Matched to job {result.job_id}.")
        self.log_change(request, result.job, f"Answer {row.pk} matched to it.")

    def asked(self, verb: Verb, rows: Sequence[Answer], form: Any) -> dict[str, Any]:
        """Return what the page says, with what is known of the job where one was named."""
        question = super().asked(verb, rows, form)
        if form.is_bound and not form.errors:
            try:
                question["facts"] = self._facts(rows[0], self._shown_job(form.cleaned_data["job"]))
                form.show()
            except InvalidAnswerError as error:
                form.refuse(error)
        return question

    def _facts(self, answer: Answer, job: Job) -> list[tuple[str, str]]:
        """Return what is known of a job; raise `InvalidAnswerError` where it cannot be its."""
        if reason := refusal(answer, job):
            raise InvalidAnswerError(
                gettext("They cannot be matched: %(reason)s") % {"reason": reason}
            )
        return [
            (gettext("job"), self.link(Job, job.pk, title(job))),
            (gettext("state"), badge(*standing(job))),
            (gettext("job type"), job.job_type.name),
            (gettext("key"), or_dash(job.job_key)),
            (gettext("attempt"), str(job.attempt or gettext("none yet"))),
            (gettext("created"), when(job.create_time, self.now)),
            (gettext("job data"), block(shown(job, job.job_data))),
        ]

    def options(self, request: HttpRequest, verb: Verb, form: VerbForm) -> dict[str, Any]:
        """Return the id of a job that this user is shown."""
        return {"job_id": self._shown_job(form.cleaned_data["job"]).pk}

    def _shown_job(self, pk: int) -> Job:
        """Return a job; raise `InvalidAnswerError` where this user is shown no such one."""
        page, rows = self.page_of(Job), Job.objects.all()
        jobs: QuerySet[Any] = page.get_queryset(self.reader) if page and self.reader else rows
        found = jobs.using(self.database).select_related("job_type", "queue").filter(pk=pk)
        job: Job | None = found.first()
        if job is None:
            raise InvalidAnswerError(gettext("There is no job %(id)s.") % {"id": pk})
        return job

    def confirm_rows(self, rows: Sequence[Answer], verb: Verb) -> list[Any]:
        """Return what is known of the answer, and a link to the jobs that wait for theirs."""
        waiting = gettext("Jobs that wait for their answer")
        [answer] = rows
        return [
            (gettext("status"), str(answer.get_status_display())),
            (gettext("kind"), str(answer.get_kind_display())),
            (gettext("job type"), answer.job_type),
            (gettext("key"), or_dash(answer.job_key)),
            (gettext("received"), when(answer.receive_time, self.now)),
            (gettext("payload"), block(shown(answer, answer.payload))),
            (gettext("job"), self.list_link(Job, waiting, {"state": "awaiting"})),
        ]
