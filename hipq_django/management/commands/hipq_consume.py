"""`manage.py hipq_consume`: receives answers from a source of messages."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from hipq_django.management.instance_command import InstanceCommand
from hipq_django.processes.connections import give_back_own
from hipq_django.processes.consumer import ConsumerProcess
from hipq_django.processes.start_up import check_shards, reached, set_up_logging
from hipq_django.processes.stop_signals import on_stop_signals
from hipq_django.sharding.map import map_of


class Command(InstanceCommand):
    """Receives answers until stopped by SIGTERM or Ctrl-C; at a second one it exits at once."""

    help = "Receive answers from a source of HIPQ['SOURCES'] until stopped by SIGTERM or Ctrl-C."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        super().add_arguments(parser)
        parser.set_defaults(verbosity=None)  # without -v the project's own level counts
        parser.add_argument("source", metavar="NAME", help="The source, a key of SOURCES.")

    def run(self, options: dict[str, Any]) -> None:
        """Run the consumer."""
        set_up_logging(options["verbosity"])
        try:
            process = ConsumerProcess(options["source"], self.config.name)
            check_shards(self.config, [shard.alias for shard in map_of(self.config).shards])
            on_stop_signals(process.stop)
            with reached(self.config):
                process.run()  # once it has started, it backs off and comes back
        finally:
            give_back_own()
