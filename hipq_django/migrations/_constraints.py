"""Conditions of checks, as they were when a migration was made: published, they never change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import BooleanField, Func
from django.db.models.sql.compiler import SQLCompiler
from django.utils.deconstruct import deconstructible

from hipq_django.models import constraints


@deconstructible(path="hipq_django.models.constraints.IsValidCombination")
class IsValidCombination(Func):
    """The condition of 0001. To `makemigrations` it is that of the models, with the same values."""

    def __init__(self, shapes: Sequence[str]) -> None:
        fields = ("state", "outcome", "phase", "error", "worker")
        super().__init__(*fields, output_field=BooleanField())
        self.shapes = shapes

    @property
    def identity(self) -> Any:
        """What it is compared by."""
        return (constraints.IsValidCombination, *super().identity[1:])

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
