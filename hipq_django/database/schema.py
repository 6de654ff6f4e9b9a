"""Whether a database has the tables, and all migrations of them."""

from __future__ import annotations

from django.db import connections
from django.db.migrations.executor import MigrationExecutor

_migrated = ["hipq"]
"""The labels of the apps that are migrated with the queue."""

TABLE = "hipq_job"


def also_migrated(label: str) -> None:
    """Let workers need the migrations of one more app, whose tables stand beside the queue's."""
    if label not in _migrated:
        _migrated.append(label)


def missing_migrations(using: str) -> list[str]:
    """Return the migrations of hipq_django that the database lacks, in their order."""
    executor = MigrationExecutor(connections[using])
    graph = executor.loader.graph
    plan = executor.migration_plan([leaf for app in _migrated for leaf in graph.leaf_nodes(app)])
    return [f"{one.app_label}.{one.name}" for one, _ in plan if one.app_label in _migrated]


def has_tables(using: str) -> bool:
    """Return whether the database has the tables, which a database router may have kept out."""
    return TABLE in connections[using].introspection.table_names()
