"""`manage.py hipq_doctor`: what slows the queues, and what to do."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError
from django.db import Error

from hipq_django.conf.instances import get_instance
from hipq_django.conf.rules import DEFAULT
from hipq_django.database.errors import in_one_line
from hipq_django.exceptions import HipqError
from hipq_django.monitoring.doctor import Finding, Level, examine

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Sequence

# 1 and 2 are what every command exits with that failed, or did not know an option.
ONLY_WARNINGS = 3
PROBLEMS = 4

COLUMN = len("PROBLEM  ")


class Command(BaseCommand):
    """Looks once, changes nothing, and prints what is wrong, the worst first."""

    help = "Say what slows the queues and what to do; exit with 0, 3 (warnings) or 4 (problems)."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("--instance", default=DEFAULT, help="The hipq instance; %(default)s.")
        parser.add_argument("--json", action="store_true", help="Print JSON, for scripts.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Examine, print and exit."""
        try:
            findings = examine(get_instance(options["instance"]))
        except HipqError as error:
            raise CommandError(str(error)) from error
        except Error as error:
            raise CommandError(f"database: {in_one_line(error)}") from error
        if options["json"]:
            self.stdout.write(json.dumps([asdict(finding) for finding in findings], indent=2))
        else:
            self._print(findings)
        if findings:
            raise SystemExit(_exit_code(findings))

    def _print(self, findings: Sequence[Finding]) -> None:
        for finding in findings:
            is_problem = finding.level is Level.PROBLEM
            style = self.style.ERROR if is_problem else self.style.WARNING
            head = style(finding.level.upper().ljust(COLUMN))
            self.stdout.write(f"{head}{finding.where}: {finding.what}")
            self.stdout.write(f"{' ' * COLUMN}-> {finding.what_to_do}")
            self.stdout.write(f"{' ' * COLUMN}   {finding.why}")
        self.stdout.write(_summary(findings))


def _exit_code(findings: Sequence[Finding]) -> int:
    levels = {finding.level for finding in findings}
    return PROBLEMS if Level.PROBLEM in levels else ONLY_WARNINGS


def _summary(findings: Sequence[Finding]) -> str:
    if not findings:
        return "Nothing slows the queues."
    problems = sum(finding.level is Level.PROBLEM for finding in findings)
    return f"{_number(problems, 'problem')}, {_number(len(findings) - problems, 'warning')}."


def _number(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
