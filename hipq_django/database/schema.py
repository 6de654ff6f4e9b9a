"""Whether a database has all migrations of the tables."""

from __future__ import annotations

from django.db import connections
from django.db.migrations.executor import MigrationExecutor

from hipq_django.extensions import registered


def missing_migrations(using: str) -> list[str]:
    """Return the migrations of the queue and its extensions that the database lacks, in order."""
    apps = ["hipq", *filter(None, (each.migrated_app for each in registered))]
    executor = MigrationExecutor(connections[using])
    graph = executor.loader.graph
    plan = executor.migration_plan([leaf for app in apps for leaf in graph.leaf_nodes(app)])
    return [f"{one.app_label}.{one.name}" for one, _ in plan if one.app_label in apps]
