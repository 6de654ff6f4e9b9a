"""What the commands have in common: each is for one instance."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, ClassVar

from django.core.management.base import BaseCommand, CommandError, OutputWrapper
from django.db import Error
from django.utils.dateparse import parse_datetime

from hipq_django.conf.instances import InstanceSettings, get_instance
from hipq_django.conf.rules import DEFAULT
from hipq_django.events import printable
from hipq_django.exceptions import HipqError
from hipq_django.processes.start_up import why_failed


class _Shown(OutputWrapper):
    """Writes no control characters, which names and texts from outside may have."""

    def write(  # type: ignore[override]  # as that of Django, which the stubs lack
        self, msg: str = "", style_func: Any = None, ending: str | None = None
    ) -> None:
        super().write(printable(msg, "\n"), style_func, ending)


class InstanceCommand(BaseCommand):
    """A command for one instance; if it fails, it says why in one line."""

    config: InstanceSettings

    requires_system_checks = []
    """None: an error anywhere in the project must not hide what the queue does.

    A command that cannot run says so itself.
    """

    takes: ClassVar[Mapping[str, Sequence[str]]] = {}
    """The options and arguments that only some verbs take, by verb, for a command with verbs."""

    kept_as: ClassVar[Mapping[str, str]] = {}
    """The names under which Django hands over those of them that have other names there."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "--instance", default=DEFAULT, help="The hipq instance (default: %(default)s)."
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        """Run; raise `CommandError` if a setting, or the database, does not allow it."""
        # What is raised here, Django writes there too.
        for name in ("stdout", "stderr"):
            setattr(self, name, _Shown(getattr(self, name)._out))
        try:
            self.config = get_instance(options["instance"])
            if self.takes:
                self._check_taken(options["verb"], options)
            self.run(options)
        except HipqError as error:
            raise CommandError(str(error)) from error
        except Error as error:
            raise CommandError(why_failed(self.config, error)) from error

    def _check_taken(self, verb: str, options: dict[str, Any]) -> None:
        """Raise `CommandError` for what is given and only other verbs take."""
        parser = self.create_parser("manage.py", "")
        taken = self.takes[verb]
        for name in sorted({*chain.from_iterable(self.takes.values())}.difference(taken)):
            key = self.kept_as.get(name, name.lstrip("-"))
            value = options[key]
            if value != parser.get_default(key):
                given = name if value is True else f"{name} {value!r}"
                known = ", ".join(taken) or "nothing"
                raise CommandError(f"{verb} does not take {given}; it takes {known}.")

    def run(self, options: dict[str, Any]) -> None:
        """Do what the command is for."""
        raise NotImplementedError


def given_moment(verb: str, option: str, text: str | None) -> datetime:
    """Return the moment of an option; raise `CommandError` if it is none, or has no zone."""
    if text is None:
        raise CommandError(
            f"{verb}: give {option}, a moment with its zone, such as 2026-11-22T00:00Z."
        )
    try:
        moment = parse_datetime(text)
    except ValueError:
        moment = None
    if moment is None or moment.utcoffset() is None:
        raise CommandError(
            f"{verb}: {option} {text!r}: give a moment with its zone, such as 2026-11-22T00:00Z."
        )
    return moment
