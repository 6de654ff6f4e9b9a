"""`manage.py hipq_worker`: runs the batch scheduler."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, BooleanOptionalAction
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from django.db import connections

from hipq_django.domain.validation import checked_number
from hipq_django.exceptions import nearest_name
from hipq_django.job_types.registry import declared_queues
from hipq_django.management.instance_command import InstanceCommand
from hipq_django.management.shards_command import checked_shard
from hipq_django.models import Queue
from hipq_django.processes.connections import give_back_own
from hipq_django.processes.options import WorkerOptions
from hipq_django.processes.recycling import can_measure_memory
from hipq_django.processes.reloader import Reloader
from hipq_django.processes.start_up import (
    check_pool,
    check_shards,
    reached,
    serving,
    set_up_logging,
)
from hipq_django.processes.stop_signals import end_at_the_second, leave, on_stop_signals
from hipq_django.processes.supervisor import Supervisor
from hipq_django.processes.worker import WorkerProcess
from hipq_django.sharding.map import map_of

OPTIONS: dict[str, dict[str, Any]] = {
    "queues": {
        "nargs": "*",
        "metavar": "QUEUE",
        "help": "Queues to serve, separated by spaces or commas; default: all.",
    },
    "--exclude": {
        "action": "append",
        "metavar": "QUEUE",
        "help": "Serve all queues except these, separated by commas.",
    },
    "--shard": {
        "metavar": "ALIAS",
        "help": "Serve this shard alone; default: each shard by processes of its own.",
    },
    "--threads": {
        "type": int,
        "default": 8,
        "help": "Threads per process; default: %(default)s.",
    },
    "--processes": {
        "type": int,
        "default": 1,
        "help": "Processes, of each shard; default: %(default)s.",
    },
    "--interval": {
        "type": float,
        "help": "Longest pause between polls in seconds; default: 0.05, or 0.5 with NOTIFY.",
    },
    "--until-idle": {
        "action": "store_true",
        "help": "Exit when there is nothing left to do now.",
    },
    "--drain-seconds": {
        "type": float,
        "help": "How long running jobs may take to finish after SIGTERM; then they are put back.",
    },
    "--max-jobs": {
        "type": int,
        "help": "Recycle a process after this many jobs.",
    },
    "--max-memory": {
        "type": int,
        "metavar": "MB",
        "help": "Recycle a process that has more resident memory than this many megabytes.",
    },
    "--reload": {
        "action": BooleanOptionalAction,
        "help": "Restart when code changes; the default in DEBUG.",
    },
}
"""What the command is given, as `ArgumentParser.add_argument` takes it."""

RANGES = {
    "threads": (1, 1_000),
    "processes": (1, 1_000),
    "interval": (0.001, 3_600),
    "max_jobs": (1, 1_000_000_000),
    "max_memory": (1, 1_000_000),
    "drain_seconds": (0, 86_400),
}


class Command(InstanceCommand):
    """Runs jobs until stopped by SIGTERM or Ctrl-C; a second one puts running jobs back."""

    help = (
        "Run jobs until stopped. SIGTERM or Ctrl-C finishes running jobs; a second one puts them "
        "back and exits."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        super().add_arguments(parser)
        parser.set_defaults(verbosity=None)  # without -v the project's own level counts
        for name, option in OPTIONS.items():
            parser.add_argument(name, **option)

    def run(self, options: dict[str, Any]) -> None:
        """Run the worker, or several under a supervisor."""
        on_stop_signals(sys.exit)  # so that none is lost until the worker listens
        options |= {name: _names_in(options[name] or []) for name in ("queues", "exclude")}
        shards = self._shards(options["shard"])
        alone = shards[0] if self.config.is_sharded and options["shard"] else ""
        options["shard"] = alone
        self.config = self.config.on(shards[0])
        try:
            self._check(options, shards)
            set_up_logging(options["verbosity"])
            with serving(self.config.name, alone):
                self._run(options, shards)
        finally:
            give_back_own()

    def _shards(self, alias: str | None) -> Sequence[str]:
        """Return the databases to serve; all shards of the map if none is given."""
        if alias is None:
            return [shard.alias for shard in map_of(self.config).shards]
        return [checked_shard(self.config, alias)]

    def _run(self, options: dict[str, Any], shards: Sequence[str]) -> None:
        process = self._process(options, shards)
        on_stop_signals(process.stop)
        reloader = Reloader(process.stop)
        reload = options["reload"]
        if reload is None:
            reload = settings.DEBUG and not options["until_idle"]
        if reload:
            reloader.open()
        with reached(self.config):
            process.run()  # once it has started, it backs off and comes back
        if reloader.changed:
            reloader.restart()
        is_own = self._called_from_command_line  # type: ignore[attr-defined]  # the stubs lack it
        if is_own and isinstance(process, WorkerProcess):  # else it is somebody else's process
            leave(process.exit_code, at_once=process.has_abandoned_handlers)

    def _process(
        self, options: dict[str, Any], shards: Sequence[str]
    ) -> WorkerProcess | Supervisor:
        names = {field.name for field in fields(WorkerOptions)}
        worker_options = WorkerOptions(**{name: options[name] for name in names & options.keys()})
        for_each_shard = self.config.is_sharded and not options["shard"]
        if for_each_shard or options["processes"] > 1:
            connections.close_all()  # the children have their own
            of_shards = shards if self.config.is_sharded else [""]
            return Supervisor(worker_options, options["processes"], of_shards)
        end_at_the_second(worker_options.drain_seconds)
        return WorkerProcess(worker_options)

    # Whether it can start

    def _check(self, options: dict[str, Any], shards: Sequence[str]) -> None:
        for name, (low, high) in RANGES.items():
            if options[name] is not None:
                checked_number(f"--{name.replace('_', '-')}", options[name], low, high)
        if options["max_memory"] is not None and not can_measure_memory():
            raise CommandError("--max-memory needs Linux: this system has no /proc/self/statm.")
        for alias in shards:
            check_pool(self.config.on(alias), options["threads"])
        self.config = check_shards(self.config, shards)
        with reached(self.config):
            self._check_queues(options["queues"], options["exclude"])

    def _check_queues(self, queues: list[str], excluded: list[str]) -> None:
        if queues and excluded:
            raise CommandError(
                "--exclude: give either the queues to serve or the queues to exclude."
            )
        if not (queues or excluded):
            return
        rows = Queue.objects.using(self.config.database).filter(instance=self.config.name)
        known = declared_queues(self.config.name).union(rows.values_list("name", flat=True))
        for name in [*queues, *excluded]:
            if name not in known:
                raise CommandError(
                    f"unknown queue {name!r}{nearest_name(name, known)} A queue exists once HIPQ "
                    "or a job type names it, or a job is enqueued to it."
                )


def _names_in(texts: list[str]) -> list[str]:
    """Return the names of queues in arguments such as "bank,exports", each once."""
    for text in texts:
        if not text.strip(", "):
            raise CommandError(f"{text!r} names no queue; give names, such as bank,exports.")
    found = [name.strip() for text in texts for name in text.split(",")]
    return list(dict.fromkeys(filter(None, found)))
