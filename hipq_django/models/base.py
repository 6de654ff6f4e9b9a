"""What the models share: their fields, their manager, and the database that a row is in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import QuerySet
from django.db.models.fields.related_descriptors import ForwardManyToOneDescriptor
from django.utils.translation import override

from hipq_django.domain.states import NONE

if TYPE_CHECKING:
    from django.utils.functional import _StrOrPromise

AnyRow = TypeVar("AnyRow", bound=models.Model)
Set = TypeVar("Set")
Get = TypeVar("Get")


class JsonField(models.JSONField):
    """JSON that is never NULL: None is stored as JSON's own null."""

    def get_db_prep_save(self, value: Any, connection: BaseDatabaseWrapper) -> Any:
        """Prepare None like any other value."""
        if value is None:
            return self.get_db_prep_value(value, connection)
        return super().get_db_prep_save(value, connection)


def factor_field(default: int, verbose_name: _StrOrPromise) -> models.DecimalField[Any, Any]:
    """Return a field for weights and limits: exact, because sums of floats are not."""
    return models.DecimalField(verbose_name, max_digits=12, decimal_places=3, default=default)


def no_error() -> str:
    """Return the value of an error field where there is no error."""
    return NONE


class InOneDatabase(ForwardManyToOneDescriptor):  # type: ignore[type-arg]  # it takes none
    """A reference between rows of one database, whatever a router says."""

    def __init__(self, field_with_rel: Any) -> None:
        super().__init__(field_with_rel)
        self._name = field_with_rel.name

    def __get__(self, instance: Any, cls: Any = None) -> Any:
        """Return the row that is known, if it is: Django takes three times as long to find it."""
        if instance is not None:
            known = instance._state.fields_cache.get(self._name)
            if known is not None:
                return known
        return super().__get__(instance, cls)

    def __set__(self, instance: models.Model, value: models.Model | None) -> None:
        """Let a new row be in the database of the one that it refers to.

        Django would ask the router, which may name a database that it knows, and refuse the other.
        """
        if value is not None and instance._state.db is None:
            instance._state.db = value._state.db
        super().__set__(instance, value)


class RowKey(models.ForeignKey[Set, Get]):
    """A reference to a row of ours, which is in the same database."""

    forward_related_accessor_class = InOneDatabase

    def deconstruct(self) -> Any:
        """Return what migrations have: in the database it is any foreign key."""
        name, _, args, kwargs = super().deconstruct()
        return name, "django.db.models.ForeignKey", args, kwargs


class RowManager(models.Manager[AnyRow]):
    """Finds what belongs to a row in the database of that row, whatever a router says.

    `job.queue` and `queue.jobs` go through it. A router that sends reads to a replica would show
    them as they were some moments ago, or not at all.
    """

    def get_queryset(self) -> QuerySet[AnyRow]:
        """Return all rows, of the database of the row they are asked of where there is one."""
        rows = super().get_queryset()
        hints: dict[str, Any] = getattr(self, "_hints", {})
        row = hints.get("instance") or getattr(self, "instance", None)
        if self._db is None and row is not None and row._state.db:
            return rows.using(row._state.db)
        return rows


def title(row: models.Model) -> str:
    """Return what a row is called in the active language; `str(row)` is English, as the log is."""
    return f"{row._meta.verbose_name} {name_in_its_kind(row)}"


def name_in_its_kind(row: models.Model) -> str:
    """Return what a row is called after its kind, as in: The job “5” was changed."""
    with override(None):
        kind = str(row._meta.verbose_name)
    return str(row).removeprefix(f"{kind} ")


class Row(models.Model):
    """What jobs, queues, workers and answers share."""

    class Meta:
        abstract = True

    @property
    def using(self) -> str:
        """The alias of the database this row is in."""
        return self._state.db or "default"

    def stand_for_row_in(self, using: str) -> None:
        """Let a copy that was read from a replica stand for the row itself, in its database.

        What it refers to was read from the replica too, and is read again when it is needed.
        """
        self._state.db = using
        self._state.fields_cache.clear()
