"""What the peers that live in a Django project share."""

from __future__ import annotations

import os

import django
from django.core.management import call_command
from django.db import connections

from benchmarks.measuring.runner import Runner


def set_up(settings: str) -> None:
    """Prepare Django with this settings module, also for the workers that are started later."""
    os.environ["DJANGO_SETTINGS_MODULE"] = settings
    django.setup()


class DjangoRunner(Runner):
    """A system whose tables are made by Django's migrations."""

    def prepare(self) -> None:
        """Migrate."""
        call_command("migrate", verbosity=0)

    def disconnect(self) -> None:
        """Close the connection; the next query opens another one."""
        connections.close_all()
