"""Fields that the models share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models

from hipq_django.domain.states import NONE

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


class JsonField(models.JSONField):
    """JSON that is never NULL: None is stored as JSON's own null."""

    def get_db_prep_save(self, value: Any, connection: BaseDatabaseWrapper) -> Any:
        """Prepare None like any other value."""
        if value is None:
            return self.get_db_prep_value(value, connection)
        return super().get_db_prep_save(value, connection)


def factor_field(default: int, verbose_name: str) -> models.DecimalField[Any, Any]:
    """Return a field for weights and limits: exact, because sums of floats are not."""
    return models.DecimalField(verbose_name, max_digits=12, decimal_places=3, default=default)


def no_error() -> str:
    """Return the value of an error field where there is no error."""
    return NONE
