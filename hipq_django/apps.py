"""The Django app."""

from django.apps import AppConfig
from django.db.backends.signals import connection_created
from django.utils.module_loading import autodiscover_modules


class HipqConfig(AppConfig):
    """Registers the checks and imports every app's `jobs` module."""

    name = "hipq_django"
    label = "hipq"
    verbose_name = "Job queue"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Connect what must run in every process."""
        from hipq_django import checks
        from hipq_django.database import clock

        checks.register()
        connection_created.connect(clock.measure_on_connect)
        autodiscover_modules("jobs")
