"""`manage.py demo`: a shop, a worker and a bank, and what they do with some orders."""

import json
import sys
import time
from argparse import ArgumentParser
from contextlib import suppress
from typing import Any
from urllib.request import urlopen

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError

from example_project.demo.children import Child
from example_project.demo.customer import Customer
from example_project.demo.progress import Progress
from example_project.demo.results import Round, broken_promises, limit_of_the_bank
from example_project.demo.stage import ChildError, Stage, StoppedError
from example_project.payments.jobs import FINAL_ERRORS

START_SECONDS = 30
MAX_ORDERS = 1_000
ABOUT_DECLINED_CARDS = (
    "Errors that belong to the story: the bank declined some cards for good, as it was to.\n"
    "The worker's log says of each such job that it has failed:"
)
ADMIN_NAME = ADMIN_PASSWORD = "demo"  # noqa: S105 - refused unless DEBUG, served to this machine only


class Command(BaseCommand):
    """Starts all processes, sends orders, shows what happens, and ends the processes again."""

    help = "Run the example: a shop, a worker and a bank that answers later."
    # The shop makes them when it starts. Some ask the database, before `handle` could say in one
    # line that it cannot be reached.
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "--orders", type=int, default=30, help="How many orders; default: %(default)s."
        )
        parser.add_argument("--seed", type=int, default=1, help="The seed of what the bank does.")
        parser.add_argument(
            "--seconds",
            type=float,
            default=50,
            help="How long everything may take; default: %(default)s.",
        )
        parser.add_argument(
            "--exit",
            action="store_true",
            help="Exit after the table; the default without a terminal.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Play the demo; exit code 1 if anything is not as promised."""
        if not settings.DEBUG:
            raise CommandError("The demo makes an admin with a known password: set DEBUG=true.")
        if not 1 <= options["orders"] <= MAX_ORDERS:
            raise CommandError(f"--orders {options['orders']}: give 1 to {MAX_ORDERS}.")
        try:
            with Stage() as stage, stage.blaming_the_dead():
                self._prepare()
                stage.check()
                self._play(stage, options)
        except StoppedError as error:
            sys.exit(error.exit_code)
        except (ChildError, DatabaseError, OSError) as error:
            raise CommandError(str(error).strip()) from error

    def _prepare(self) -> None:
        self.stdout.write("Preparing the database …")
        call_command("migrate", verbosity=0)
        create_admin()

    def _play(self, stage: Stage, options: dict[str, Any]) -> None:
        self.stdout.write(f"Starting bank, shop and worker; their logs are in {stage.logs}")
        orders = Round.begin()
        bank, shop = start(stage, options["seed"])
        self.stdout.write(f"Sending {options['orders']} orders through the shop's page …")
        self.stdout.write("The bank declines some and loses others; the worker asks again.")
        send(stage, Customer(f"{shop}/", seed=options["seed"]), options["orders"])
        report, limit = self._watch(stage, orders, bank, options["seconds"])
        self._tell(orders, report, limit)
        self._show_troubles(stage)
        self._check(broken_promises(orders, report, limit))
        self.stdout.write(f"\nShop:  {shop}/")
        self.stdout.write(
            f"Admin: {shop}/admin/ (log in as {ADMIN_NAME}, password {ADMIN_PASSWORD})"
        )
        if sys.stdin.isatty() and not options["exit"]:
            self._stay(stage)

    def _watch(
        self, stage: Stage, orders: Round, bank: str, seconds: float
    ) -> tuple[dict[str, int], float]:
        """Show progress until all is settled; return the bank's report and the highest limit."""
        progress, limit = Progress(self.stdout), 0.0
        end = time.monotonic() + seconds
        while True:
            report, unsettled = read_report(bank), len(orders.unsettled())
            # An operator may change the limit while the demo runs.
            limit = max(limit, limit_of_the_bank())
            progress.show(progress_line(orders.count() - unsettled, unsettled, report, limit))
            if not (unsettled or report["unfinished"]) or time.monotonic() > end:
                progress.end()
                return report, limit
            stage.pause()

    def _tell(self, orders: Round, report: dict[str, int], limit: float) -> None:
        self.stdout.write(f"\nWhat happened to {orders.count()} orders:")
        rows = {
            **{name: str(number) for name, number in orders.results().items()},
            "cards charged, as the bank counts": str(report["charged"]),
            "most in flight in the bank at once": f"{report['max_in_flight']} of {limit:g} allowed",
        }
        for name, number in rows.items():
            self.stdout.write(f"  {name:<42}{number}")

    def _show_troubles(self, stage: Stage) -> None:
        troubles = stage.troubles()
        meant = [line for line in troubles if any(f'error="{e}"' in line for e in FINAL_ERRORS)]
        if meant:
            self.stdout.write(f"\n{ABOUT_DECLINED_CARDS}")
        for line in meant:
            self.stdout.write(f"  {line}")
        for line in troubles:
            if line not in meant:
                self.stderr.write(line)

    def _check(self, broken: list[str]) -> None:
        if broken:
            raise CommandError("Not as promised:\n" + "\n".join(broken))

    def _stay(self, stage: Stage) -> None:
        self.stdout.write("Ctrl-C ends the demo.")
        with suppress(StoppedError):
            while True:
                stage.pause()


def create_admin() -> None:
    """Create the admin who is told to log in, unless an earlier demo has done so."""
    users = get_user_model()._default_manager
    if not users.filter(username=ADMIN_NAME).exists():
        users.create_superuser(ADMIN_NAME, "", ADMIN_PASSWORD)


def start(stage: Stage, seed: int) -> tuple[str, str]:
    """Start all processes, on ports that are free; return the addresses of bank and shop."""
    bank = stage.start("bank", "-m", "example_project.bank", f"--seed={seed}", "--port=0")
    shop = stage.start("shop", "-m", "django", "runserver", "--noreload", "127.0.0.1:0")
    addresses = address(stage, bank), address(stage, shop)
    # The worker sends the requests to the bank, so it is the one who must know the addresses. It
    # lets no payment time out in its first three beats, and the demo shows some that do.
    urls = {"BANK_URL": f"{addresses[0]}/payments", "SITE_URL": addresses[1]}
    worker = ("-m", "django", "hipq_worker", "--no-reload")
    stage.start("worker", *worker, **urls, HEARTBEAT_SECONDS="1")
    return addresses


def address(stage: Stage, child: Child) -> str:
    """Wait until a server says where it serves."""
    if not stage.wait_until(child.address, seconds=START_SECONDS):
        raise ChildError(f"The {child.name} does not start.\n{child.last_words()}")
    return child.address()


def send(stage: Stage, customer: Customer, number: int) -> None:
    """Let the customer place so many orders."""
    for _ in range(number):
        stage.check()
        customer.buy()


def read_report(bank: str) -> dict[str, int]:
    """Ask the bank for its counts."""
    with urlopen(f"{bank}/report", timeout=10) as reply:  # noqa: S310 - the demo's own bank
        report: dict[str, int] = json.load(reply)
    return report


def progress_line(settled: int, unsettled: int, report: dict[str, int], limit: float) -> str:
    """Return what is shown while orders are open."""
    return (
        f"{settled} orders settled, {unsettled} open; "
        f"the bank has {report['in_flight']} in flight, {limit:g} allowed"
    )
