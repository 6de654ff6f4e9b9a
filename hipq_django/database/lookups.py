"""Conditions and look-ups that the ORM does not have."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import F, Lookup, TextChoices
from django.db.models.sql.compiler import SQLCompiler

from hipq_django.domain.states import Outcome, State


class _LiteralIn(Lookup):
    """`column IN (…)` with literals; a lookup, because other conditions are compared with 1."""

    lookup_name = "literal_in"
    prepare_rhs = False

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> tuple[str, Any]:
        """Write the literals as they stand in the condition of the index."""
        column, params = self.process_lhs(compiler, connection)
        return f"{column} IN ({self.rhs})", params


def state_in(*states: State) -> Lookup[Any]:
    """Return the condition `state IN (…)` with literals.

    SQLite, and PostgreSQL's generic plans, match a partial index by literals only, not by
    parameters.
    """
    return _LiteralIn(F("state"), _literals(states))


def outcome_in(*outcomes: Outcome) -> Lookup[Any]:
    """Return the condition `outcome IN (…)` with literals, as `state_in`."""
    return _LiteralIn(F("outcome"), _literals(outcomes))


def _literals(words: Iterable[TextChoices]) -> str:
    return ", ".join(f"'{word.value}'" for word in words)


def max_rows_per_statement(using: str) -> int:
    """Return how many rows one statement may name by parameters."""
    limit = connections[using].features.max_query_params
    return min(500, limit // 3) if limit else 500
