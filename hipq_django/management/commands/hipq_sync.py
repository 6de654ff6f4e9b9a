"""`manage.py hipq_sync`: writes the rows of queues, job types and schedules as the code says."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any

from django.core.management.base import CommandError

from hipq_django.management.instance_command import InstanceCommand
from hipq_django.models import catalog
from hipq_django.schedules import declared
from hipq_django.sharing.limits import follow_setting


class Command(InstanceCommand):
    """Does what a worker does when it starts; edits stay unless they are reset."""

    help = "Write queues, job types and schedules as the setting and the code say; edits stay."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        super().add_arguments(parser)
        parser.add_argument(
            "--reset", nargs="*", metavar="NAME", help="Undo the edits, of all rows or of these."
        )

    def run(self, options: dict[str, Any]) -> None:
        """Write the rows, and print one line for each that differs."""
        names: list[str] | None = options["reset"]
        is_reset: Callable[[str], bool] = catalog.never
        if names is not None:
            is_reset = names.__contains__ if names else bool
        follow_setting(self.config, is_reset)
        left = catalog.sync(self.config.name, is_reset=is_reset)
        left += declared.sync(self.config.name, is_reset=is_reset)
        for where, what in declared.edits(self.config).items():
            self.stdout.write(f"{where}: {what}.")
        if left:
            raise CommandError(f"left as they are, because somebody has locked them: {left}")
