"""The Django app of flows."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _

from hipq_django.conf.instances import get_instances
from hipq_django.conf.rules import DEFAULT
from hipq_django.exceptions import ConfigurationError
from hipq_django.extensions import register


class FlowConfig(AppConfig):
    """Lets workers run nodes, and imports every app's `flows` module."""

    name = "hipq_django.flow"
    label = "hipq_flow"
    verbose_name = _("Flows")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Connect the runs of nodes to the queue's workers."""
        from hipq_django.flow import checks, library  # noqa: F401 - the library declares itself
        from hipq_django.flow.extension import FlowExtension

        checks.register()
        register(FlowExtension())
        _declare_components()


def _declare_components() -> None:
    """Declare the standard components in each instance, and what apps have in `flows`."""
    from hipq_django.flow.declaring import declare_standard

    try:
        names = [config.name for config in get_instances()]
    except ConfigurationError:  # the checks say what is wrong
        names = [DEFAULT]
    for name in names:
        if name != DEFAULT:
            declare_standard(name)
    autodiscover_modules("flows")
