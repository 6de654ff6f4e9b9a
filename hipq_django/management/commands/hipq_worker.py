"""`manage.py hipq_worker`: runs the batch scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from hipq_django.conf.instances import get_instance
from hipq_django.conf.rules import DEFAULT
from hipq_django.exceptions import ConfigurationError, HipqError, nearest_name
from hipq_django.models import Queue, catalog
from hipq_django.processes.child import leave
from hipq_django.processes.logs import set_up_logging
from hipq_django.processes.options import WorkerOptions
from hipq_django.processes.own_connections import adopt, disown_all
from hipq_django.processes.reloader import Reloader
from hipq_django.processes.start_up import check_database, check_pool, reached
from hipq_django.processes.stop_signals import end_at_the_second, on_stop_signals
from hipq_django.processes.supervisor import Supervisor
from hipq_django.processes.worker import WorkerProcess

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from hipq_django.conf.instances import InstanceSettings


class Command(BaseCommand):
    """Runs jobs until stopped by SIGTERM or Ctrl-C; a second one puts running jobs back."""

    help = (
        "Run jobs until stopped. SIGTERM or Ctrl-C finishes running jobs; a second one puts them "
        "back and exits."
    )
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("queues", nargs="*", metavar="QUEUE", help="Queues to serve; all.")
        parser.add_argument("--instance", default=DEFAULT, help="The hipq instance; %(default)s.")
        parser.add_argument(
            "--threads", type=int, default=8, help="Threads per process; %(default)s."
        )
        parser.add_argument("--processes", type=int, default=1, help="Processes; %(default)s.")
        parser.add_argument(
            "--interval",
            type=float,
            help="Longest pause between polls in seconds; 0.05, or 0.5 where NOTIFY wakes it.",
        )
        parser.add_argument(
            "--until-idle", action="store_true", help="Leave when there is nothing left to do now."
        )
        parser.add_argument(
            "--reload",
            action="store_true",
            default=None,
            help="Restart when code changes; the default in DEBUG.",
        )
        parser.add_argument(
            "--no-reload", action="store_false", dest="reload", help="Do not restart."
        )

    def handle(self, *queues: str, **options: Any) -> None:
        """Run the worker, or several under a supervisor."""
        try:
            self._handle(options)
        finally:
            disown_all()

    def _handle(self, options: dict[str, Any]) -> None:
        worker_options = self._checked(options)
        set_up_logging(options["verbosity"])
        process: WorkerProcess | Supervisor
        if options["processes"] > 1:
            process = Supervisor(worker_options, options["processes"])
        else:
            process = WorkerProcess(worker_options)
            end_at_the_second()
        on_stop_signals(process.stop)
        self._run(process, self._wants_reload(options))

    def _run(self, process: WorkerProcess | Supervisor, reload: bool) -> None:
        reloader = Reloader(process.stop)
        if reload:
            reloader.open()
        try:
            with reached(get_instance(process.options.instance)):
                process.run()  # once it has started, it backs off and comes back
        except ConfigurationError as error:
            raise CommandError(str(error)) from error
        if reloader.changed:
            reloader.restart()
        self._leave(process)

    def _leave(self, process: WorkerProcess | Supervisor) -> None:
        if isinstance(process, WorkerProcess) and process.has_abandoned_handlers:
            leave()

    def _wants_reload(self, options: dict[str, Any]) -> bool:
        if options["reload"] is None:
            return bool(settings.DEBUG) and not options["until_idle"]
        return bool(options["reload"])

    # Whether it can start

    def _checked(self, options: dict[str, Any]) -> WorkerOptions:
        for name in ("threads", "processes"):
            if not 1 <= options[name] <= 1_000:
                raise CommandError(f"--{name} {options[name]}: give a number from 1 to 1,000.")
        if options["interval"] is not None and not 0.001 <= options["interval"] <= 3_600:
            raise CommandError(f"--interval {options['interval']}: give 0.001 to 3,600 seconds.")
        try:
            config = get_instance(options["instance"])
            check_pool(config, options["threads"])
            adopt(config.database)
            check_database(config)
            with reached(config):
                self._check_queues(config, options["queues"])
        except HipqError as error:
            raise CommandError(str(error)) from error
        return WorkerOptions(
            instance=config.name,
            queues=tuple(options["queues"]),
            threads=options["threads"],
            interval=options["interval"],
            until_idle=options["until_idle"],
            verbosity=options["verbosity"],
        )

    def _check_queues(self, config: InstanceSettings, names: list[str]) -> None:
        if not names:
            return
        catalog.sync(config.name)
        rows = Queue.objects.using(config.database).filter(instance=config.name)
        known = set(rows.values_list("name", flat=True))
        for name in names:
            if name not in known:
                raise CommandError(
                    f"unknown queue {name!r}{nearest_name(name, known)} A queue exists once it is "
                    "in HIPQ, named by a job type, or enqueued to."
                )
