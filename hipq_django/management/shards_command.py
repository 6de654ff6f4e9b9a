"""What the commands have in common that go through all shards of an instance."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any, NamedTuple

from django.core.management.base import CommandError
from django.utils.text import get_text_list

from hipq_django.conf.instances import InstanceSettings, on_shard
from hipq_django.database.answering import answers
from hipq_django.domain.sharding import Shard
from hipq_django.management.instance_command import InstanceCommand
from hipq_django.sharding.map import map_of


class OfShard(NamedTuple):
    """What came of one shard: a result, or a problem."""

    shard: Shard
    problem: str
    """'' if it answers."""
    result: Any = None


class ShardsCommand(InstanceCommand):
    """A command that does the same in each shard, or in the one that is given."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        super().add_arguments(parser)
        parser.add_argument("--shard", metavar="ALIAS", help="Only this shard; default: all.")

    def in_each_shard(
        self, alias: str | None, do: Callable[[InstanceSettings], Any]
    ) -> list[OfShard]:
        """Call `do` with the settings on each shard that answers; in order of their numbers."""
        return [self._in_shard(shard, do) for shard in self._given(alias)]

    def _in_shard(self, shard: Shard, do: Callable[[InstanceSettings], Any]) -> OfShard:
        if self.config.is_sharded and not answers(shard.alias):
            return OfShard(shard, f"{shard.alias} does not answer")
        with on_shard(self.config.name, shard.alias):
            return OfShard(shard, "", do(self.config.on(shard.alias)))

    def _given(self, alias: str | None) -> list[Shard]:
        known = map_of(self.config)
        if alias is None:
            return list(known.shards)
        shard = known.of_alias(checked_shard(self.config, alias))
        if shard is None:
            raise CommandError(
                f"database {alias!r} is no shard of instance {self.config.name!r} yet: run "
                "manage.py hipq_shards add."
            )
        return [shard]


def checked_shard(config: InstanceSettings, alias: str) -> str:
    """Return the alias of a shard of the setting; raise `CommandError` for another one."""
    if alias not in config.shards:
        listed = get_text_list([*config.shards], "and")
        raise CommandError(f"--shard {alias!r}: SHARDS has {listed}.")
    return alias


def fail_for(outcomes: list[OfShard]) -> None:
    """Raise `CommandError` if a shard has not answered."""
    if problems := [outcome.problem for outcome in outcomes if outcome.problem]:
        raise CommandError("; ".join(problems))
