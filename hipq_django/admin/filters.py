"""Filters of lists: each asks for few values and never looks through all rows for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib.admin import ModelAdmin, SimpleListFilter
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from hipq_django.database import clock
from hipq_django.domain.states import Outcome, State
from hipq_django.models import Answer, JobType, Queue
from hipq_django.models.job import JobQuerySet


class _RowFilter(SimpleListFilter):
    """Filters jobs by a row they point to."""

    model: type[Queue | JobType]
    field: str

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> list[tuple[str, str]]:
        """Return the rows there are; a queue or a job type is a row, so they are few."""
        # For mypy: a HipqAdmin.
        rows = self.model._default_manager.using(model_admin.database)  # type: ignore[attr-defined]
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

    title = "queue"
    parameter_name = "queue"
    model = Queue
    field = "queue_id"


class JobTypeFilter(_RowFilter):
    """Jobs of one type."""

    title = "job type"
    parameter_name = "type"
    model = JobType
    field = "job_type_id"


class StateFilter(SimpleListFilter):
    """Where jobs stand, by conditions that have an index."""

    title = "state"
    parameter_name = "state"
    labels = {
        "due": "due, not started",
        "waiting": "waiting (initial, retry)",
        "initial": "initial",
        "retry": "retry",
        "running": "running",
        "awaiting": "running, waits for its answer",
        "error": "error",
        "final": "final",
    }
    oldest_first = labels.keys() - {"final"}

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> list[tuple[str, str]]:
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

    title = "outcome"
    parameter_name = "outcome"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> list[tuple[str, str]]:
        """Return the choices."""
        return [(o.value, o.label.lower()) for o in Outcome if o != Outcome.NONE]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        """Return the jobs that ended so."""
        value = self.value()
        if value not in Outcome.values:
            return queryset.none() if value else queryset
        return queryset.ended(Outcome(value))


class AnswerFilter(SimpleListFilter):
    """What became of an answer."""

    title = "status"
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> list[tuple[str, str]]:
        """Return the choices."""
        return [
            ("no_job", "no job has it (early or unmatched)"),
            *Answer.Status.choices,
            ("failed", "failed: a message that is no answer"),
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

    title = "kind"
    parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> list[tuple[str, str]]:
        """Return the choices."""
        return list(Answer.Kind.choices)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the answers of the chosen kind."""
        value = self.value()
        if value is None:
            return queryset
        return queryset.filter(kind=value) if value in Answer.Kind.values else queryset.none()
