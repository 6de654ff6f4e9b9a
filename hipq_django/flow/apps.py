"""The Django app of flows."""

from __future__ import annotations

from functools import partial

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _


class FlowConfig(AppConfig):
    """Lets workers run nodes, and imports every app's `flows` module."""

    name = "hipq_django.flow"
    label = "hipq_flow"
    verbose_name = _("Flows")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Connect the runs of nodes to the queue's workers."""
        from hipq_django.flow import (
            checks,
            library,  # noqa: F401 - declares the standard components
        )
        from hipq_django.flow.declaring import KIND
        from hipq_django.flow.publishing import announce_components
        from hipq_django.flow.runs.companion import RUNS
        from hipq_django.flow.stages import wake_stages
        from hipq_django.scheduler.companions import also_at_start, register
        from hipq_django.transitions.outcomes import watch

        checks.register()
        register(KIND, RUNS)
        also_at_start(announce_components)
        watch(wake_stages)
        _show_to_operators(self.label)
        _declare_components()


def _show_to_operators(label: str) -> None:
    """Let migrations, status, doctor and pruning see the tables of flows, too."""
    from hipq_django.database.schema import also_migrated
    from hipq_django.flow.models import LogEntry, Request
    from hipq_django.flow.upkeep import count, examine, needed_by_stages, old
    from hipq_django.maintenance.retention import also_prune
    from hipq_django.monitoring.doctor import also_examine
    from hipq_django.monitoring.overview import also_count

    also_migrated(label)
    also_prune("flow log", partial(old, LogEntry), needed_by_stages)
    also_prune("flow requests", partial(old, Request))
    also_count("flows", count)
    also_examine(examine)


def _declare_components() -> None:
    """Declare the standard components in each instance, and what apps have in `flows`."""
    from hipq_django.conf.instances import get_instances
    from hipq_django.conf.rules import DEFAULT
    from hipq_django.exceptions import ConfigurationError
    from hipq_django.flow.declaring import declare_standard

    try:
        names = [config.name for config in get_instances()]
    except ConfigurationError:  # the checks say what is wrong
        names = [DEFAULT]
    for name in names:
        if name != DEFAULT:
            declare_standard(name)
    autodiscover_modules("flows")
