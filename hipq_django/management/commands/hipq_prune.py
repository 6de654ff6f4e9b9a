"""`manage.py hipq_prune`: deletes final jobs past their retention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error

from hipq_django.conf.instances import get_instance
from hipq_django.conf.rules import DEFAULT, QUEUE_RANGES
from hipq_django.exceptions import HipqError
from hipq_django.maintenance.retention import prune
from hipq_django.processes.start_up import why_failed

if TYPE_CHECKING:
    from argparse import ArgumentParser


class Command(BaseCommand):
    """Deletes in batches, so that it may run while workers do."""

    help = "Delete final jobs that are older than the retention of their queue."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("--instance", default=DEFAULT, help="The hipq instance; %(default)s.")
        parser.add_argument("--days", type=float, help="Instead of each queue's retention_days.")
        parser.add_argument("--dry-run", action="store_true", help="Count, delete nothing.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Prune and print one line for each queue."""
        days = options["days"]
        low, high = QUEUE_RANGES["retention_days"]
        if days is not None and not low <= days <= high:
            raise CommandError(f"--days {days}: give a number from {low:,} to {high:,}.")
        try:
            config = get_instance(options["instance"])
            counts = prune(config, days=days, dry_run=options["dry_run"])
        except HipqError as error:
            raise CommandError(str(error)) from error
        except Error as error:
            raise CommandError(why_failed(config, error)) from error
        verb = "would delete" if options["dry_run"] else "deleted"
        for name, number in counts.items():
            self.stdout.write(f"{name}: {verb} {number}")
