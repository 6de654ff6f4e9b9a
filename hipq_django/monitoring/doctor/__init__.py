"""What slows a queue: measured values, and pure rules that turn them into findings."""

from __future__ import annotations

from hipq_django.conf.instances import InstanceSettings
from hipq_django.database.transactions import looks_only
from hipq_django.extensions import registered
from hipq_django.monitoring.doctor.findings import Finding, Level
from hipq_django.monitoring.doctor.measuring import measure, measure_queues
from hipq_django.monitoring.doctor.rules import diagnose

__all__ = ["Finding", "Level", "diagnose", "examine", "measure", "measure_queues"]


def examine(config: InstanceSettings) -> list[Finding]:
    """Look at an instance and its database; return what is wrong, problems first.

    Nothing is changed. Raise Django's database errors where the database cannot be asked.
    """
    measured = measure(config)
    found = diagnose(measured)
    if measured.missing_migrations:
        return found
    with looks_only(config.database):
        more = [finding for each in registered for finding in each.findings(config)]
    return sorted([*found, *more], key=lambda finding: finding.level != Level.PROBLEM)
