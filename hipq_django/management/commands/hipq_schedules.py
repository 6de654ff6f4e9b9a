"""`manage.py hipq_schedules`: shows schedules, and pauses, resumes, runs and backfills them."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from datetime import datetime
from typing import Any, ClassVar

from django.core.management.base import CommandError
from django.utils import timezone

from hipq_django.database import clock
from hipq_django.domain.states import NONE
from hipq_django.management.instance_command import InstanceCommand, given_moment
from hipq_django.models import Schedule
from hipq_django.schedules import api

MAX_COUNT = 1_000


class Command(InstanceCommand):
    """Each verb is the function of its name, behind `do_`."""

    help = "Show schedules; pause, resume, run or backfill one."
    takes: ClassVar = {
        "list": ("--json",),
        "next": ("name", "--count", "--json"),
        "pause": ("name", "--reason"),
        "resume": ("name",),
        "run": ("name",),
        "backfill": ("name", "start", "end"),
    }

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        super().add_arguments(parser)
        parser.add_argument("verb", nargs="?", default="list", choices=list(self.takes))
        parser.add_argument("name", nargs="?", help="The name of the schedule. `list` takes none.")
        parser.add_argument(
            "start", nargs="?", help="backfill: the first moment, such as 2026-11-22T00:00Z."
        )
        parser.add_argument("end", nargs="?", help="backfill: the end, which is not included.")
        parser.add_argument(
            "--count",
            type=int,
            default=5,
            help="next: how many due times to show, at most 1,000 (default: %(default)s).",
        )
        parser.add_argument("--reason", default="", help="pause: why; the admin shows it.")
        parser.add_argument("--json", action="store_true", help="list, next: print JSON.")

    def run(self, options: dict[str, Any]) -> None:
        """Do what the verb says."""
        if options["verb"] != "list" and not options["name"]:
            raise CommandError(f"{options['verb']}: name a schedule.")
        getattr(self, f"do_{options['verb']}")(options)

    def do_list(self, options: dict[str, Any]) -> None:
        """Print all schedules."""
        rows = Schedule.objects.using(self.config.database).filter(instance=self.config.name)
        shown = [_shown(row) for row in rows.select_related("job_type")]
        if options["json"]:
            self.stdout.write(json.dumps(shown, indent=2))
            return
        for row in shown:
            state = f" {row['state']}" if row["state"] != "active" else ""
            self.stdout.write(f"{row['name']}: {row['times']}, next {row['next']}{state}")
        if not shown:
            self.stdout.write("no schedules; a worker that starts writes down those of its code")

    def do_next(self, options: dict[str, Any]) -> None:
        """Print the next due times."""
        count = options["count"]
        if not 1 <= count <= MAX_COUNT:
            rule = f"give a whole number from 1 to {MAX_COUNT:,}."
            raise CommandError(f"next: --count {count}: {rule}")
        row = api.get_schedule(options["name"], self.config.name)
        times = row.spec.upcoming(clock.now(self.config.database), count)
        texts = [at.isoformat(timespec="seconds") for at in times]
        self.stdout.write(json.dumps(texts) if options["json"] else "\n".join(texts) or "never")

    def do_pause(self, options: dict[str, Any]) -> None:
        """Pause one."""
        row = api.pause_schedule(options["name"], options["reason"], instance=self.config.name)
        self.stdout.write(f"{row.name}: paused")

    def do_resume(self, options: dict[str, Any]) -> None:
        """Resume one."""
        row = api.resume_schedule(options["name"], instance=self.config.name)
        self.stdout.write(f"{row.name}: next {_time(row.next_time)}")

    def do_run(self, options: dict[str, Any]) -> None:
        """Make a job now."""
        job = api.run_schedule(options["name"], instance=self.config.name)
        self.stdout.write(f"{options['name']}: {job}")

    def do_backfill(self, options: dict[str, Any]) -> None:
        """Make the jobs of due times that have passed."""
        start, end = (
            given_moment("backfill", option, options[option]) for option in ("start", "end")
        )
        jobs = api.backfill(options["name"], start, end, instance=self.config.name)
        self.stdout.write(f"{options['name']}: {len(jobs)} jobs")


def _shown(row: Schedule) -> dict[str, Any]:
    try:
        times = str(row.spec)
    except Exception as error:
        times = str(error)
    states = {"paused": row.paused, "retired": row.retired, "in trouble": row.problem != NONE}
    return {
        "name": row.name,
        "job_type": row.job_type.name,
        "times": times,
        "next": _time(row.next_time),
        "state": ", ".join(name for name, holds in states.items() if holds) or "active",
        "problem": None if row.problem == NONE else row.problem,
    }


def _time(moment: datetime | None) -> str:
    return "never" if moment is None else timezone.localtime(moment).isoformat(timespec="seconds")
