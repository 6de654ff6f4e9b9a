"""The system check of the setting FLOW."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.core import checks

from hipq_django.conf import instances
from hipq_django.flow.settings import flow_problems


def register() -> None:
    """Register the check with Django."""
    checks.register(check_settings)


def check_settings(**_: Any) -> Iterator[checks.CheckMessage]:
    """E038, for each instance."""
    for instance in instances.valid_instances():
        yield from flow_problems(instance.name)
