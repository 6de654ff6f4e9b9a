"""The parts of the schema that Django's models do not describe; their SQL is in the migrations."""

from __future__ import annotations

from django.db import connections
from django.db.migrations.executor import MigrationExecutor

_migrated = ["hipq"]
"""The labels of the apps that are migrated with the queue."""

TABLE = "hipq_job"
TRIGGER = "hipq_job_guard"

RANGED = ("extended_seconds", "job_key", "priority", "progress", "throttle_factor", "timeout")
"""The columns that the check hipq_job_ranges is about; on PostgreSQL their types have it."""

# Rows of a queue change often: let vacuum run early and fast, and leave room for the new version of
# a row on its page.
STORAGE = {
    "fillfactor": 85,
    "autovacuum_vacuum_scale_factor": 0.02,
    "autovacuum_vacuum_threshold": 500,
    "autovacuum_vacuum_cost_limit": 2000,
    "autovacuum_vacuum_cost_delay": 1,
    "autovacuum_vacuum_insert_scale_factor": 0.02,
    "autovacuum_analyze_scale_factor": 0.02,
}


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
