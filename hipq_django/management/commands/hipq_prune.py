"""`manage.py hipq_prune`: deletes final jobs past their retention."""

from __future__ import annotations

from argparse import ArgumentParser
from functools import partial
from typing import Any

from hipq_django.conf.options import DAYS
from hipq_django.maintenance.retention import prune
from hipq_django.management.shards_command import ShardsCommand, fail_for


class Command(ShardsCommand):
    """Deletes in batches, so that it can run beside workers."""

    help = (
        "Delete final jobs that are older than the retention of their queue, with their answers; "
        "answers without a job; batches without jobs; and what apps above the queue keep, such as "
        "the logs of flows."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        super().add_arguments(parser)
        parser.add_argument(
            "--days",
            type=float,
            help="Use this number of days instead of each retention time.",
        )
        parser.add_argument("--dry-run", action="store_true", help="Count, but delete nothing.")

    def run(self, options: dict[str, Any]) -> None:
        """Prune and print one line for each queue."""
        days = options["days"]
        if days is not None:
            DAYS.checked(days, "--days")
        clear = partial(prune, days=days, dry_run=options["dry_run"])
        found = self.in_each_shard(options["shard"], clear)
        verb = "would delete" if options["dry_run"] else "deleted"
        for each in found:
            where = f"{each.shard.alias}: " if self.config.is_sharded else ""
            for name, number in (each.result or {}).items():
                self.stdout.write(f"{where}{name}: {verb} {number}")
        fail_for(found)
