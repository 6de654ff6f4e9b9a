"""Which values of a job's row fit together, said in one word for each row.

On PostgreSQL a migration replaces this check by one whose list is in a domain: the server reads the
text of a check anew for each statement, that of a domain once for each session.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import BooleanField, Func
from django.db.models.sql.compiler import SQLCompiler
from django.utils.deconstruct import deconstructible


@deconstructible(path="hipq_django.models.constraints.IsValidCombination")
class IsValidCombination(Func):
    """The condition that a job's row has one of these shapes; see `states.VALID_COMBINATIONS`."""

    def __init__(self, shapes: Sequence[str]) -> None:
        fields = ("state", "outcome", "phase", "error", "worker")
        super().__init__(*fields, output_field=BooleanField())
        self.shapes = shapes

    def as_sql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, *_: Any, **__: Any
    ) -> Any:
        """Write the list as SQL does."""
        shape, params = self._shape(compiler)
        words = ", ".join(f"'{word}'" for word in self.shapes)
        return f"{shape} IN ({words})", params

    def _shape(self, compiler: SQLCompiler) -> tuple[str, list[Any]]:
        compiled = [compiler.compile(field) for field in self.get_source_expressions()]
        state, outcome, phase, error, worker = (sql for sql, _ in compiled)
        word = (
            f"{state} || '/' || {outcome} || '/' || {phase}"
            f" || CASE WHEN {error} = '\"NONE\"' THEN '' ELSE '/error' END"
            f" || CASE WHEN {worker} IS NULL THEN '' ELSE '/worker' END"
        )
        return word, [param for _, params in compiled for param in params]
