"""`manage.py hipq_consume`: takes answers from a source of messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError

from hipq_django.conf.rules import DEFAULT
from hipq_django.exceptions import HipqError
from hipq_django.processes.consumer import ConsumerOptions, ConsumerProcess
from hipq_django.processes.logs import set_up_logging
from hipq_django.processes.own_connections import disown_all
from hipq_django.processes.start_up import check_database, reached
from hipq_django.processes.stop_signals import on_stop_signals

if TYPE_CHECKING:
    from argparse import ArgumentParser


class Command(BaseCommand):
    """Takes answers until stopped by SIGTERM or Ctrl-C; a second one leaves at once."""

    help = "Take answers from a source of HIPQ['SOURCES'] until stopped by SIGTERM or Ctrl-C."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("source", metavar="NAME", help="The source, a key of SOURCES.")
        parser.add_argument("--instance", default=DEFAULT, help="The hipq instance; %(default)s.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the consumer."""
        set_up_logging(options["verbosity"])
        try:
            process = ConsumerProcess(ConsumerOptions(options["source"], options["instance"]))
            check_database(process.config)
            on_stop_signals(process.stop)
            with reached(process.config):
                process.run()  # once it has started, it backs off and comes back
        except HipqError as error:
            raise CommandError(str(error)) from error
        finally:
            disown_all()
