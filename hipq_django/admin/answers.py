"""Answers: what came in, and what became of it."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext, gettext_lazy as _

from hipq_django.admin.answer_matching import AnswerMatching
from hipq_django.admin.answer_values import meaning_of, status_badge
from hipq_django.admin.base import ReadOnlyAdmin, column
from hipq_django.admin.display import NOTHING, block, or_dash, when
from hipq_django.admin.filters import AnswerFilter, KindFilter
from hipq_django.admin.jobs import MAX_FOUND, ids_with_key
from hipq_django.models import Answer, Job
from hipq_django.models.masking import shown


@admin.register(Answer)
class AnswerAdmin(AnswerMatching, ReadOnlyAdmin):
    """The inbox; the filter finds the answers that no job has."""

    change_form_template = "hipq_django/admin/answer.html"
    list_display = (
        "id", "status_badge", "kind", "job_type", "job_key", "to_job", "tries", "received",
    )  # fmt: skip
    list_filter = (AnswerFilter, KindFilter)
    list_defer = ("payload",)
    search_fields = ("job_key",)
    search_help_text = _("A complete job key.")
    fields = (
        "status_badge", "meaning", "kind", "what_is_wrong", "job_type", "job_key", "to_job",
        "tries", "part_name", "message", "received", "instance", "content",
    )  # fmt: skip

    def beside_form(self, request: HttpRequest, row: Answer) -> dict[str, Any]:
        """Return the way to its job, where no job has it."""
        may = row.is_free and self.may_do(request, "match")
        return {"match_url": self.row_url(row, "match") if may else ""}

    def label(self, row: Answer) -> str:
        """Return what an answer is called; there is a word to translate amid its name."""
        text = gettext("answer %(id)s for %(job_type)s %(job_key)s")
        return text % {"id": row.pk, "job_type": row.job_type, "job_key": row.job_key}

    def find(self, rows: QuerySet[Any], term: str) -> QuerySet[Any]:
        """Return the answers with exactly this key, and those of jobs with it, by indexes.

        None has the keys of accepted answers: they are found by their jobs.
        """
        jobs = ids_with_key(Job.objects.using(rows.db), term)
        of_jobs = rows.filter(job__in=jobs).order_by()
        others = rows.exclude(status=Answer.Status.ACCEPTED).filter(job_key=term)
        parts = (part.values_list("pk", flat=True)[:MAX_FOUND] for part in (of_jobs, others))
        return rows.filter(pk__in=[pk for part in parts for pk in part])

    status_badge = column(_("status"), lambda self, answer: status_badge(answer))
    meaning = column(_("meaning"), lambda self, answer: meaning_of(answer))

    to_job = column(_("job"), lambda self, answer: self.job_link(answer.job_id))
    tries = column(_("attempt"), lambda self, answer: str(answer.attempt or NOTHING))
    part_name = column(_("part"), lambda self, answer: answer.part or NOTHING)
    received = column(_("received"), lambda self, answer: when(answer.receive_time, self.now))
    message = column(_("message id"), lambda self, answer: or_dash(answer.message_id))
    what_is_wrong = column(
        _("problem"), lambda self, answer: or_dash(shown(answer, answer.problem))
    )
    content = column(_("payload"), lambda self, answer: block(shown(answer, answer.payload)))
