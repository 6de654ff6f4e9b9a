"""Matching an answer to a job by hand: look at both, then press."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.http import urlencode
from django.utils.translation import gettext, gettext_lazy as _

from hipq_django.admin.answer_values import name_of
from hipq_django.admin.display import NOTHING, badge, block, or_dash, when
from hipq_django.admin.job_panel import standing
from hipq_django.admin.row_pages import RowPages
from hipq_django.answers import api
from hipq_django.answers.classification import refusal
from hipq_django.domain.validation import MAX_ID
from hipq_django.exceptions import HipqError
from hipq_django.models import Answer, Job
from hipq_django.models.base import title
from hipq_django.models.shown import shown


class JobIdForm(forms.Form):
    """The job that an answer belongs to."""

    job = forms.IntegerField(min_value=1, max_value=MAX_ID, label=_("Job id"))


class AnswerMatching(RowPages):
    """The page on which an operator matches an answer that no job has."""

    def has_match_answer_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may match answers to jobs, both of which the page shows."""
        permitted = request.user.has_perm(f"{self.opts.app_label}.match_answer")
        return (
            permitted
            and self.has_view_or_change_permission(request)
            and self.may_view(request, Job)
        )

    def can_match(self, request: HttpRequest, answer: Answer) -> bool:
        """Return whether this user may match this answer."""
        return answer.is_free and self.has_match_answer_permission(request)

    def get_urls(self) -> list[Any]:
        """Return the pages with the one for matching."""
        return [self.address("match", AnswerMatching._match_view), *super().get_urls()]

    def _match_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        if not self.has_match_answer_permission(request):
            raise PermissionDenied
        answer = self.get_object(request, unquote(object_id))
        if answer is None:
            text = _("There is no answer %(id)s.") % {"id": object_id}
            self.message_user(request, text, messages.ERROR)
            return HttpResponseRedirect(self.url(Answer, "changelist"))
        given = request.POST if request.method == "POST" else request.GET
        form = JobIdForm(given if "job" in given else None)
        job = self._chosen(request, form)
        if request.method == "POST" and job is not None:
            return self._match(request, answer, job.pk)
        return self._match_page(request, answer, form, job)

    def _match(self, request: HttpRequest, answer: Answer, job_id: int) -> HttpResponse:
        """Match and write it down in both histories, all of it or nothing."""
        try:
            with transaction.atomic(using=self.database):
                matched = api.assign(answer, job_id)
                self.log_change(request, matched, f"Matched to job {job_id}.")
                self.log_change(request, matched.job, f"Answer {matched.pk} matched to it.")
        except HipqError as error:
            self.message_user(request, str(error), messages.ERROR)
            again = f"{self.url(Answer, 'match', answer.pk)}?{urlencode({'job': job_id})}"
            return HttpResponseRedirect(again)
        text = _("Answer %(id)s is %(status)s: it was matched to %(job)s.")
        values = {
            "id": matched.pk,
            "status": name_of(matched.status),
            "job": title(matched.job) if matched.job else NOTHING,
        }
        self.message_user(request, text % values, messages.SUCCESS)
        return HttpResponseRedirect(self.url(Answer, "change", matched.pk))

    def _match_page(
        self, request: HttpRequest, answer: Answer, form: JobIdForm, job: Job | None
    ) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "media": self.media,
            "title": _("Match answer %(id)s to a job") % {"id": answer.pk},
            "original": answer,
            "row_label": self.heading(answer),
            "form": form,
            "answer_rows": self._answer_rows(answer),
            "job": job,
            "job_title": title(job) if job else "",
            "job_rows": self._job_rows(job) if job else [],
            "refusal": refusal(answer, job) if job else "",
            "jobs_url": self.list_url(Job, {"state": "awaiting"}),
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "hipq_django/admin/match_answer.html", context)

    def _chosen(self, request: HttpRequest, form: JobIdForm) -> Job | None:
        """Return the job that was named, if it is one of those that this user is shown."""
        if not form.is_bound or not form.is_valid():
            return None
        pk, page = form.cleaned_data["job"], self.page_of(Job)
        jobs: QuerySet[Job] = page.get_queryset(request) if page else Job.objects.all()
        job = jobs.using(self.database).select_related("job_type", "queue").filter(pk=pk).first()
        if job is None:
            form.add_error("job", _("There is no job %(id)s.") % {"id": pk})
        return job

    def _answer_rows(self, answer: Answer) -> list[tuple[str, str]]:
        return [
            (gettext("status"), str(answer.get_status_display())),
            (gettext("kind"), str(answer.get_kind_display())),
            (gettext("job type"), answer.job_type),
            (gettext("key"), or_dash(answer.job_key)),
            (gettext("received"), when(answer.receive_time, self.now)),
            (gettext("payload"), block(shown(answer, answer.payload))),
        ]

    def _job_rows(self, job: Job) -> list[tuple[str, str]]:
        return [
            (gettext("job"), self.link(Job, job.pk, title(job))),
            (gettext("state"), badge(*standing(job))),
            (gettext("job type"), job.job_type.name),
            (gettext("key"), or_dash(job.job_key)),
            (gettext("attempt"), str(job.attempt or gettext("none yet"))),
            (gettext("created"), when(job.create_time, self.now)),
            (gettext("job data"), block(shown(job, job.job_data))),
        ]
