"""`manage.py nightly_analytics`: does by hand what a schedule does at midnight."""

from typing import Any

from django.core.management.base import BaseCommand
from django.utils import timezone

from example_project.analytics.jobs import enqueue_reports
from example_project.analytics.nights import night_of


class Command(BaseCommand):
    """Enqueues in bulk; called again for the same night, it adds only what is new."""

    help = "Enqueue the report of every account for the night that is going on, or for the next."

    def handle(self, *args: Any, **options: Any) -> None:
        """Enqueue and say how many."""
        night = night_of(timezone.now())
        jobs = enqueue_reports(night)
        self.stdout.write(f"{len(jobs)} reports enqueued for the night of {night}.")
