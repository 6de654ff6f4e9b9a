"""What slows the queues, what it leads to, and what to do."""

from __future__ import annotations

from collections.abc import Iterable

from hipq_django.conf.instances import InstanceSettings
from hipq_django.database import clock
from hipq_django.database.schema import missing_migrations
from hipq_django.database.transactions import looks_only
from hipq_django.extensions import registered
from hipq_django.monitoring import overview
from hipq_django.monitoring.doctor import database, processes, queues, rows
from hipq_django.monitoring.doctor.findings import Finding, Level, problem
from hipq_django.monitoring.overview import Overview

__all__ = ["Finding", "Level", "examine", "examine_queues"]


def examine(config: InstanceSettings) -> list[Finding]:
    """Look at an instance and its database; return what is wrong, problems first.

    Nothing is changed. Raise Django's database errors where the database cannot be asked.
    """
    with looks_only(config.database):
        if missing := missing_migrations(config.database):
            return [_missing_migrations(config.database, missing)]
        ahead, view = clock.measure(config.database), overview.take(config)
        found = [
            *examine_queues(config, view),
            *processes.findings(config, view),
            *rows.findings(config),
            *database.findings(config.database, ahead),
        ]
        return _sorted([*found, *(one for each in registered for one in each.findings(config))])


def examine_queues(config: InstanceSettings, view: Overview) -> list[Finding]:
    """Return what is wrong with the queues and job types of an overview, problems first."""
    return _sorted([*queues.findings(config, view), *rows.of_queues(config, view)])


def _sorted(found: Iterable[Finding]) -> list[Finding]:
    return sorted(found, key=lambda finding: finding.level is not Level.PROBLEM)


def _missing_migrations(using: str, names: Iterable[str]) -> Finding:
    return problem(
        "missing_migrations",
        f"database {using}",
        f"migrations are not applied: {', '.join(names)}.",
        "No worker starts before they are; nothing else was examined.",
        f"Run manage.py migrate --database {using}.",
    )
