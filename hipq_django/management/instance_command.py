"""What the commands have in common: each is for one instance."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error

from hipq_django.conf.instances import InstanceSettings, get_instance
from hipq_django.conf.rules import DEFAULT
from hipq_django.exceptions import HipqError
from hipq_django.processes.start_up import why_failed


class InstanceCommand(BaseCommand):
    """Runs for an instance; says in one line why it cannot."""

    config: InstanceSettings

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("--instance", default=DEFAULT, help="The hipq instance; %(default)s.")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Run; `CommandError` where a setting, or the database, does not allow that."""
        try:
            self.config = get_instance(options["instance"])
            self.run(options)
        except HipqError as error:
            raise CommandError(str(error)) from error
        except Error as error:
            raise CommandError(why_failed(self.config, error)) from error

    def run(self, options: dict[str, Any]) -> None:
        """Do what the command is for."""
        raise NotImplementedError
