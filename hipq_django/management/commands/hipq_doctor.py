"""`manage.py hipq_doctor`: what slows the queues, and what to do."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from django.template.defaultfilters import pluralize

from hipq_django.management.shards_command import ShardsCommand
from hipq_django.monitoring.doctor import Finding, Level, examine, problems_first
from hipq_django.monitoring.doctor.shards import of_all, unreachable

# Every command exits with 1 if it fails, and with 2 for an unknown option.
ONLY_WARNINGS = 3
PROBLEMS = 4

COLUMN = len("PROBLEM  ")


class Command(ShardsCommand):
    """Looks once, changes nothing, and prints what is wrong, problems first."""

    help = "Say what slows the queues and what to do; exit with 0, 3 (warnings) or 4 (problems)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        super().add_arguments(parser)
        parser.add_argument("--json", action="store_true", help="Print JSON, for scripts.")

    def run(self, options: dict[str, Any]) -> None:
        """Examine, print and exit."""
        findings = self._examine(options["shard"])
        if options["json"]:
            shown = [self._as_dict(finding) for finding in findings]
            self.stdout.write(json.dumps(shown, indent=2))
        else:
            self._print(findings)
        levels = {finding.level for finding in findings}
        if levels - {Level.NOTE}:
            raise SystemExit(PROBLEMS if Level.PROBLEM in levels else ONLY_WARNINGS)

    def _examine(self, shard: str | None) -> list[Finding]:
        found = self.in_each_shard(shard, examine)
        if not self.config.is_sharded:
            return list(found[0].result)
        findings = [
            replace(finding, shard=each.shard.alias)
            for each in found
            for finding in ([unreachable(each.shard.alias)] if each.problem else each.result)
        ]
        return problems_first([*findings, *([] if shard else of_all(self.config))])

    def _as_dict(self, finding: Finding) -> dict[str, Any]:
        values = asdict(finding)
        if not self.config.is_sharded:
            del values["shard"]
        return values

    def _print(self, findings: Sequence[Finding]) -> None:
        for finding in findings:
            is_problem = finding.level is Level.PROBLEM
            style = self.style.ERROR if is_problem else self.style.WARNING
            self.stdout.write(finding.level.upper().ljust(COLUMN), style, ending="")
            place = f" in {finding.shard}" if finding.shard else ""
            self.stdout.write(f"{finding.where}{place}: {finding.what}")
            self.stdout.write(f"{' ' * COLUMN}-> {finding.what_to_do}")
            self.stdout.write(f"{' ' * COLUMN}   {finding.why}")
        self.stdout.write(_summary(findings))


def _summary(findings: Sequence[Finding]) -> str:
    problems = sum(finding.level is Level.PROBLEM for finding in findings)
    warnings = sum(finding.level is Level.WARNING for finding in findings)
    if not problems + warnings:
        return "Nothing slows the queues."
    return f"{problems} problem{pluralize(problems)}, {warnings} warning{pluralize(warnings)}."
