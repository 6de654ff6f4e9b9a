"""What slows a queue: measured values, and pure rules that turn them into findings."""

from __future__ import annotations

from hipq_django.conf.instances import InstanceSettings
from hipq_django.monitoring.doctor.findings import Finding, Level
from hipq_django.monitoring.doctor.measuring import measure
from hipq_django.monitoring.doctor.rules import diagnose

__all__ = ["Finding", "Level", "diagnose", "examine", "measure"]


def examine(config: InstanceSettings) -> list[Finding]:
    """Look at an instance and its database; return what is wrong, problems first.

    Nothing is changed. Raise Django's database errors where the database cannot be asked.
    """
    return diagnose(measure(config))
