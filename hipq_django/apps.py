"""The Django app."""

from __future__ import annotations

from django.apps import AppConfig
from django.db.backends.signals import connection_created
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _

from hipq_django.conf.instances import autodiscovered
from hipq_django.conf.options import INSTANCE
from hipq_django.exceptions import ConfigurationError
from hipq_django.extensions import register


class HipqConfig(AppConfig):
    """Registers the checks and imports every app's modules of jobs."""

    name = "hipq_django"
    label = "hipq"
    verbose_name = _("Job queue")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Connect what must run in every process."""
        from hipq_django import checks
        from hipq_django.database import clock
        from hipq_django.database.errors import quote_nothing_if
        from hipq_django.dependencies.unholding import DependenciesExtension
        from hipq_django.job_types.registry import has_sensitive
        from hipq_django.tasks_backend.extension import TASKS

        checks.register()
        register(DependenciesExtension())
        register(TASKS)
        quote_nothing_if(has_sensitive)
        connection_created.connect(clock.measure_on_connect)
        for module in _modules_of_jobs():
            autodiscover_modules(module)


def _modules_of_jobs() -> list[str]:
    try:
        return autodiscovered()
    except ConfigurationError:  # the checks say what is wrong
        return [*INSTANCE.defaults["AUTODISCOVER"]]
