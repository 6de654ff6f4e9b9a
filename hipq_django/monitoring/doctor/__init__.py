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

__all__ = ["Finding", "Level", "examine", "examine_queues", "problems_first"]


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
        found += [one for each in registered for one in each.findings(config)]
        return problems_first(found)


def examine_queues(config: InstanceSettings, view: Overview) -> list[Finding]:
    """Return what is wrong with the queues and job types of an overview, problems first."""
    return problems_first([*queues.findings(config, view), *rows.of_queues(config, view)])


def problems_first(found: Iterable[Finding]) -> list[Finding]:
    """Return findings in the order in which they are shown."""
    return sorted(found, key=lambda finding: finding.level is not Level.PROBLEM)


def _missing_migrations(using: str, names: Iterable[str]) -> Finding:
    return problem(
        "missing_migrations",
        f"database {using}",
        f"migrations are not applied: {', '.join(names)}.",
        "No worker starts before they are; nothing else was examined.",
        f"Run manage.py migrate --database {using}.",
    )
