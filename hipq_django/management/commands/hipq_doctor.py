"""`manage.py hipq_doctor`: what slows the queues, and what to do."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from django.template.defaultfilters import pluralize

from hipq_django.management.instance_command import InstanceCommand
from hipq_django.monitoring.doctor import Finding, Level, examine

# Every command exits with 1 if it fails, and with 2 for an unknown option.
ONLY_WARNINGS = 3
PROBLEMS = 4

COLUMN = len("PROBLEM  ")


class Command(InstanceCommand):
    """Looks once, changes nothing, and prints what is wrong, problems first."""

    help = "Say what slows the queues and what to do; exit with 0, 3 (warnings) or 4 (problems)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        super().add_arguments(parser)
        parser.add_argument("--json", action="store_true", help="Print JSON, for scripts.")

    def run(self, options: dict[str, Any]) -> None:
        """Examine, print and exit."""
        findings = examine(self.config)
        if options["json"]:
            self.stdout.write(json.dumps([asdict(finding) for finding in findings], indent=2))
        else:
            self._print(findings)
        levels = {finding.level for finding in findings}
        if levels - {Level.NOTE}:
            raise SystemExit(PROBLEMS if Level.PROBLEM in levels else ONLY_WARNINGS)

    def _print(self, findings: Sequence[Finding]) -> None:
        for finding in findings:
            is_problem = finding.level is Level.PROBLEM
            style = self.style.ERROR if is_problem else self.style.WARNING
            self.stdout.write(finding.level.upper().ljust(COLUMN), style, ending="")
            self.stdout.write(f"{finding.where}: {finding.what}")
            self.stdout.write(f"{' ' * COLUMN}-> {finding.what_to_do}")
            self.stdout.write(f"{' ' * COLUMN}   {finding.why}")
        self.stdout.write(_summary(findings))


def _summary(findings: Sequence[Finding]) -> str:
    problems = sum(finding.level is Level.PROBLEM for finding in findings)
    warnings = sum(finding.level is Level.WARNING for finding in findings)
    if not problems + warnings:
        return "Nothing slows the queues."
    return f"{problems} problem{pluralize(problems)}, {warnings} warning{pluralize(warnings)}."
