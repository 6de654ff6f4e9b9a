"""Filters of lists: each asks for few values and never looks through all rows for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

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


class ChoiceFilter(SimpleListFilter):
    """Narrows a list by one of some choices; what is none of them finds nothing."""

    labels: Mapping[str, _StrOrPromise]
    """The choices, in their order."""

    def lookups(
        self, request: HttpRequest, model_admin: ModelAdmin[Any]
    ) -> list[tuple[str, _StrOrPromise]]:
        """Return the choices."""
        return list(self.labels.items())

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        """Return the rows of the choice; of an unknown one none."""
        value = self.value()
        if value is None:
            return queryset
        known = (str(choice) for choice, _label in self.lookup_choices)
        return self.chosen(queryset, value) if value in known else queryset.none()

    def chosen(self, rows: Any, value: str) -> Any:
        """Return the rows of a choice."""
        raise NotImplementedError


class _RowFilter(ChoiceFilter):
    """Filters jobs by a row they point to."""

    model: type[Queue | JobType]
    field: str

    def lookups(
        self, request: HttpRequest, model_admin: ModelAdmin[Any]
    ) -> list[tuple[str, _StrOrPromise]]:
        """Return the rows there are; a queue or a job type is a row, so they are few."""
        rows = self.rows(self.model._default_manager.using(model_admin.database))  # type: ignore[attr-defined]  # a HipqAdmin
        return [(str(row.pk), str(row)) for row in rows.order_by("instance", "name")]

    def rows(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Return those of all rows that can be chosen."""
        return rows

    def chosen(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        """Return the rows that point to the chosen one."""
        return rows.filter(**{self.field: value})


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


class BatchFilter(ChoiceFilter):
    """Jobs of one batch, which its page leads to; there may be too many to choose from."""

    title = _("batch")
    parameter_name = "batch"

    def lookups(
        self, request: HttpRequest, model_admin: ModelAdmin[Any]
    ) -> list[tuple[str, _StrOrPromise]]:
        """Return the batch that the address names, if it names one."""
        value = self.value()
        return [] if value is None else [(value, f"{value:.20}")]

    def chosen(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        """Return the jobs of the batch."""
        pk = id_from(value)
        return rows.none() if pk is None else rows.filter(batch_id=pk)


class _Standing(NamedTuple):
    """Where jobs stand: by a condition that has an index, in its order, which else is not used."""

    label: _StrOrPromise
    jobs: Callable[[JobQuerySet], JobQuerySet]
    order: tuple[str, ...] = ("queue_id", "rank", "id")


_BY_DEADLINE = ("queue_id", "deadline", "id")
_STANDINGS = {
    "due": _Standing(_("due, not started"), lambda jobs: jobs.due(clock.now(jobs.db))),
    "waiting": _Standing(_("waiting (initial, retry)"), lambda jobs: jobs.waiting()),
    "initial": _Standing(
        State.INITIAL.label, lambda jobs: jobs.waiting().filter(state=State.INITIAL)
    ),
    "retry": _Standing(State.RETRY.label, lambda jobs: jobs.waiting().filter(state=State.RETRY)),
    "running": _Standing(State.RUNNING.label, lambda jobs: jobs.running(), _BY_DEADLINE),
    "awaiting": _Standing(
        _("running, waits for its answer"),
        lambda jobs: jobs.running().filter(worker=None, has_pending_answer=False),
        _BY_DEADLINE,
    ),
    "error": _Standing(State.ERROR.label, lambda jobs: jobs.in_error(), ("queue_id", "id")),
    "final": _Standing(State.FINAL.label, lambda jobs: jobs.final(), ("-id",)),
}


class StateFilter(ChoiceFilter):
    """Where jobs stand."""

    title = _("state")
    parameter_name = "state"
    labels = {name: standing.label for name, standing in _STANDINGS.items()}
    orders = {name: standing.order for name, standing in _STANDINGS.items()}

    def chosen(self, rows: JobQuerySet, value: str) -> JobQuerySet:
        """Return the jobs in the chosen state."""
        return _STANDINGS[value].jobs(rows)


class OutcomeFilter(ChoiceFilter):
    """How final jobs ended."""

    title = _("outcome")
    parameter_name = "outcome"
    labels = {outcome.value: outcome.label for outcome in Outcome if outcome != Outcome.NONE}

    def chosen(self, rows: JobQuerySet, value: str) -> JobQuerySet:
        """Return the jobs that ended so."""
        return rows.ended(Outcome(value))


class EndedFilter(ChoiceFilter):
    """Jobs that ended lately, as queues and job types count them."""

    title = _("end")
    parameter_name = "ended"
    labels = {"hour": _("in the last hour")}
    order = ("-update_time", "-id")
    """The last first: by the index that has the ends of each queue."""

    def chosen(self, rows: JobQuerySet, value: str) -> JobQuerySet:
        """Return the jobs that ended then; the index that finds them begins with the queue."""
        queues = list(Queue.objects.using(rows.db).values_list("pk", flat=True))
        since = clock.now(rows.db) - LATELY
        return rows.final().filter(queue__in=queues, update_time__gt=since)


class AnswerFilter(ChoiceFilter):
    """What became of an answer."""

    title = _("status")
    parameter_name = "status"
    labels = {
        "no_job": _("without a job (early or unmatched)"),
        **dict(Answer.Status.choices),
    }

    def chosen(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        """Return the answers with the chosen status."""
        answers = Q(kind__in=(Answer.Kind.RESPONSE, Answer.Kind.ERROR))
        if value == "no_job":
            return rows.filter(answers, status__in=Answer.JOBLESS, job=None)
        return rows.filter(answers, status=value)


class KindFilter(ChoiceFilter):
    """What another system sent: a response, an error, or what is no answer."""

    title = _("kind")
    parameter_name = "kind"
    labels = dict(Answer.Kind.choices)

    def chosen(self, rows: QuerySet[Any], value: str) -> QuerySet[Any]:
        """Return the answers of the chosen kind."""
        if value == Answer.Kind.MALFORMED:
            # None of them was accepted: so says the condition of the index.
            rows = rows.exclude(status=Answer.Status.ACCEPTED)
        return rows.filter(kind=value)
