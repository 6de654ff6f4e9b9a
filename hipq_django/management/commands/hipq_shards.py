"""`manage.py hipq_shards`: shows the shards of an instance, and lets it grow."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar, NamedTuple

from django.core.management.base import CommandError, no_translations

from hipq_django.conf.options import QUEUE
from hipq_django.maintenance import growing
from hipq_django.management.instance_command import InstanceCommand
from hipq_django.management.tables import Columns, table
from hipq_django.monitoring.counts import format_count
from hipq_django.monitoring.shards import QueueShare, ShardsState, ShardState, look_at_shards
from hipq_django.sharding.map import map_of
from hipq_django.sharing.limits import change_limit


class _Line(NamedTuple):
    """One queue in one shard; None for a shard that has no queue or does not answer."""

    state: ShardState
    queue: QueueShare | None

    def number(self, name: str) -> str:
        value: Decimal | None = getattr(self.queue, name, None)
        return "-" if value is None else f"{value.normalize():f}"


COLUMNS: Columns[_Line] = {
    "shard": lambda line: str(line.state.shard.number),
    "database": lambda line: line.state.shard.alias,
    "queue": lambda line: line.queue.name if line.queue else line.state.problem or "-",
    "limit": lambda line: line.number("throttle_limit"),
    "share": lambda line: line.number("share"),
    "owed": lambda line: line.number("owed"),
    "running": lambda line: line.number("running"),
    "due": lambda line: format_count(line.queue.due) if line.queue else "-",
}


class Command(InstanceCommand):
    """Each verb is the function of its name, behind `do_`."""

    help = "Show the shards of an instance, add those that the setting names, or change a limit."
    takes: ClassVar = {"show": ("--json",), "add": (), "settle": (), "limit": ("queue", "number")}

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        super().add_arguments(parser)
        parser.add_argument(
            "verb",
            nargs="?",
            default="show",
            choices=list(self.takes),
            help="show: what each shard has of the limits. add: make the shards what SHARDS says. "
            "settle: end the time in which jobs may be in their former shard. limit: give a queue "
            "a limit in all shards.",
        )
        parser.add_argument("queue", nargs="?", help="limit: the name of the queue.")
        parser.add_argument(
            "number",
            nargs="?",
            help="limit: the new one. Without it, what the shards have is made to add up to it.",
        )
        parser.add_argument("--json", action="store_true", help="show: print JSON, for scripts.")

    @no_translations
    def run(self, options: dict[str, Any]) -> None:
        """Do what the verb says."""
        getattr(self, f"do_{options['verb']}")(options)

    def do_show(self, options: dict[str, Any]) -> None:
        """Print a line for each shard and queue; fail if a shard does not answer."""
        state = look_at_shards(self.config)
        text = json.dumps(state.as_dict(), indent=2) if options["json"] else _text(state)
        self.stdout.write(text)
        if problems := [each.problem for each in state.shards if each.problem]:
            raise CommandError("; ".join(problems))

    def do_add(self, _options: dict[str, Any]) -> None:
        """Make the map what SHARDS says, and print it."""
        growing.add(self.config)
        self._print_map()

    def do_settle(self, _options: dict[str, Any]) -> None:
        """Stop looking for keys in their former shards, and print the map."""
        growing.settle(self.config)
        self._print_map()

    def do_limit(self, options: dict[str, Any]) -> None:
        """Change a limit, or repair the sum of what the shards have of it."""
        if not options["queue"]:
            raise CommandError("limit: name a queue.")
        limit = change_limit(self.config, options["queue"], _number(options["number"]))
        text = f"{limit.normalize():f}" if limit >= 1 else "none"
        self.stdout.write(f"{options['queue']}: limit {text}")

    def _print_map(self) -> None:
        known = map_of(self.config)
        for shard in known.shards:
            self.stdout.write(f"shard {shard.number}: {shard.alias}")
        if known.count_before != len(known.shards):
            self.stdout.write(
                f"Before, there were {known.count_before}: run manage.py hipq_shards settle once "
                "their jobs have ended."
            )


def _number(text: str | None) -> Decimal | None:
    try:
        return None if text is None else Decimal(text)
    except InvalidOperation as error:
        raise CommandError(f"limit: {text!r}: give {QUEUE['THROTTLE_LIMIT'].allowed}.") from error


def _text(state: ShardsState) -> str:
    return table(COLUMNS, [*_lines(state)])


def _lines(state: ShardsState) -> Iterator[_Line]:
    for each in state.shards:
        yield from [_Line(each, queue) for queue in each.queues] or [_Line(each, None)]
