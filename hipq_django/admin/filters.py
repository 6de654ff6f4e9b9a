"""Filters of lists: each asks for few values and never looks through all rows for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django.contrib.admin import ModelAdmin, SimpleListFilter
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from hipq_django.database import clock
from hipq_django.domain.states import Outcome, State
from hipq_django.domain.validation import id_from
from hipq_django.models import Answer, JobType, Queue
from hipq_django.models.job import JobQuerySet
from hipq_django.monitoring.endings import LATELY

if TYPE_CHECKING:
    from django.utils.functional import _StrOrPromise


class _RowFilter(SimpleListFilter):
    """Filters jobs by a row they point to."""

    model: type[Queue | JobType]
    field: str

    def lookups(
        self, request: HttpRequest, model_admin: ModelAdmin[Any]
    ) -> list[tuple[str, _StrOrPromise]]:
        """Return the rows there are; a queue or a job type is a row, so they are few."""
        rows = self.model._default_manager.using(model_admin.database)  # type: ignore[attr-defined]  # a HipqAdmin
        return [(str(row.pk), str(row)) for row in rows.order_by("instance", "name")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the rows that point to the chosen one."""
        value = self.value()
        if value is None:
            return queryset
        chosen = next((pk for pk, _ in self.lookup_choices if pk == value), None)
        return queryset.filter(**{self.field: chosen}) if chosen else queryset.none()


class QueueFilter(_RowFilter):
    """Jobs of one queue."""

    title = _("queue")
    parameter_name = "queue"
    model = Queue
    field = "queue_id"


class JobTypeFilter(_RowFilter):
    """Jobs of one type."""

    title = _("job type")
    parameter_name = "type"
    model = JobType
    field = "job_type_id"


class BatchFilter(SimpleListFilter):
    """Jobs of one batch, which its page leads to; there may be too many to choose from."""

    title = _("batch")
    parameter_name = "batch"

    def lookups(
        self, request: HttpRequest, model_admin: ModelAdmin[Any]
    ) -> list[tuple[str, _StrOrPromise]]:
        """Return the batch that the address names, if it names one."""
        value = self.value()
        return [] if value is None else [(value, f"{value:.20}")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the jobs of the batch."""
        value = self.value()
        if value is None:
            return queryset
        pk = id_from(value)
        return queryset.none() if pk is None else queryset.filter(batch_id=pk)


class StateFilter(SimpleListFilter):
    """Where jobs stand, by conditions that have an index."""

    title = _("state")
    parameter_name = "state"
    labels = {
        "due": _("due, not started"),
        "waiting": _("waiting (initial, retry)"),
        "initial": State.INITIAL.label,
        "retry": State.RETRY.label,
        "running": State.RUNNING.label,
        "awaiting": _("running, waits for its answer"),
        "error": State.ERROR.label,
        "final": State.FINAL.label,
    }
    orders = {
        **dict.fromkeys(("due", "waiting", "initial", "retry"), ("queue_id", "rank", "id")),
        **dict.fromkeys(("running", "awaiting"), ("queue_id", "deadline", "id")),
        "error": ("queue_id", "id"),
    }
    """What comes first in each queue: the order of an index, which else would not be used."""

    def lookups(
        self, request: HttpRequest, model_admin: ModelAdmin[Any]
    ) -> list[tuple[str, _StrOrPromise]]:
        """Return the choices."""
        return list(self.labels.items())

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        """Return the jobs in the chosen state."""
        choose = _STATES.get(self.value() or "")
        return choose(queryset) if choose else queryset


_STATES: dict[str, Callable[[JobQuerySet], JobQuerySet]] = {
    "due": lambda jobs: jobs.due(clock.now(jobs.db)),
    "waiting": lambda jobs: jobs.waiting(),
    "initial": lambda jobs: jobs.waiting().filter(state=State.INITIAL),
    "retry": lambda jobs: jobs.waiting().filter(state=State.RETRY),
    "running": lambda jobs: jobs.running(),
    "awaiting": lambda jobs: jobs.running().filter(worker=None, has_pending_answer=False),
    "error": lambda jobs: jobs.in_error(),
    "final": lambda jobs: jobs.final(),
}


class OutcomeFilter(SimpleListFilter):
    """How final jobs ended."""

    title = _("outcome")
    parameter_name = "outcome"

    def lookups(
        self, request: HttpRequest, model_admin: ModelAdmin[Any]
    ) -> list[tuple[str, _StrOrPromise]]:
        """Return the choices."""
        return [(o.value, o.label) for o in Outcome if o != Outcome.NONE]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        """Return the jobs that ended so."""
        value = self.value()
        if value not in Outcome.values:
            return queryset.none() if value else queryset
        return queryset.ended(Outcome(value))


class EndedFilter(SimpleListFilter):
    """Jobs that ended lately, as queues and job types count them."""

    title = _("end")
    parameter_name = "ended"
    order = ("-update_time", "-id")
    """The last first: by the index that has the ends of each queue."""

    def lookups(
        self, request: HttpRequest, model_admin: ModelAdmin[Any]
    ) -> list[tuple[str, _StrOrPromise]]:
        """Return the choice."""
        return [("hour", _("in the last hour"))]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        """Return the jobs that ended then; the index that finds them begins with the queue."""
        if self.value() != "hour":
            return queryset
        queues = list(Queue.objects.using(queryset.db).values_list("pk", flat=True))
        since = clock.now(queryset.db) - LATELY
        return queryset.final().filter(queue__in=queues, update_time__gt=since)


class AnswerFilter(SimpleListFilter):
    """What became of an answer."""

    title = _("status")
    parameter_name = "status"

    def lookups(
        self, request: HttpRequest, model_admin: ModelAdmin[Any]
    ) -> list[tuple[str, _StrOrPromise]]:
        """Return the choices."""
        return [
            ("no_job", _("without a job (early or unmatched)")),
            *Answer.Status.choices,
            ("failed", _("malformed message")),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the answers with the chosen status."""
        value, answers = self.value(), Q(kind__in=(Answer.Kind.RESPONSE, Answer.Kind.ERROR))
        if value is None:
            return queryset
        if value not in dict(self.lookup_choices):
            return queryset.none()
        if value == "failed":
            # None of them was accepted: so says the condition of the index.
            return queryset.exclude(answers).exclude(status=Answer.Status.ACCEPTED)
        if value == "no_job":
            return queryset.filter(answers, status__in=Answer.JOBLESS, job=None)
        return queryset.filter(answers, status=value)


class KindFilter(SimpleListFilter):
    """What another system sent: a response, an error, or what is no answer."""

    title = _("kind")
    parameter_name = "kind"

    def lookups(
        self, request: HttpRequest, model_admin: ModelAdmin[Any]
    ) -> list[tuple[str, _StrOrPromise]]:
        """Return the choices."""
        return list(Answer.Kind.choices)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the answers of the chosen kind."""
        value = self.value()
        if value is None:
            return queryset
        if value not in Answer.Kind.values:
            return queryset.none()
        found = queryset.filter(kind=value)
        if value == Answer.Kind.MALFORMED:
            # None of them was accepted: so says the condition of the index.
            found = found.exclude(status=Answer.Status.ACCEPTED)
        return found
