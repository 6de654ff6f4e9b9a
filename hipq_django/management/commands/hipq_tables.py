"""`manage.py hipq_tables`: gives queues tables of their own, or takes these away."""

from __future__ import annotations

from argparse import ArgumentParser
from functools import partial
from typing import Any

from django.core.management.base import no_translations

from hipq_django.conf.instances import on_shard
from hipq_django.maintenance.tables_of_queues import (
    Plan,
    applied,
    dividing,
    emptying,
    joining,
    planned,
)
from hipq_django.management.instance_command import InstanceCommand


class Command(InstanceCommand):
    """Without `--apply` it only says what it would do."""

    help = "Give the queues with OWN_TABLE their tables. Without --apply, say what would be done."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        super().add_arguments(parser)
        parser.add_argument("--apply", action="store_true", help="Do it, in one transaction.")
        either = parser.add_mutually_exclusive_group()
        either.add_argument(
            "--back", action="store_true", help="Make hipq_job the plain table again."
        )
        either.add_argument(
            "--drop-ended",
            metavar="QUEUE",
            help="Empty the table of a paused queue that has no live jobs.",
        )

    @no_translations
    def run(self, options: dict[str, Any]) -> None:
        """Print a line for each thing to do, or that was done, in each database."""
        plan, look = _plan(options), applied if options["apply"] else planned
        lines = []
        for alias in self.config.shards:
            with on_shard(self.config.name, alias):
                found = look(self.config.on(alias), plan)
            lines += [f"{alias}: {line}" if self.config.is_sharded else line for line in found]
        for line in lines or ["nothing to do"]:
            self.stdout.write(line)


def _plan(options: dict[str, Any]) -> Plan:
    if queue := options["drop_ended"]:
        return partial(emptying, name=queue)
    return joining if options["back"] else dividing
