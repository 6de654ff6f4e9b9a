"""`manage.py demo_orders`: orders that go out by HTTP and are answered through Kafka."""

import os
import sys
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError

from example_project.demo.children import Child
from example_project.demo.stage import ChildError, Stage, StoppedError
from example_project.orders.jobs import buy
from example_project.orders.models import Purchase
from hipq_django.models import Answer

ITEMS = ("Teapots", "Lamps", "Bicycles", "Atlases", "Umbrellas")
START_SECONDS = 30
MAX_ORDERS = 1_000


class Command(BaseCommand):
    """Starts supplier, worker and consumer, places orders, and shows what became of them."""

    help = "Run the orders example: requests by HTTP, answers through Kafka."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "--orders", type=int, default=25, help="How many orders; default: %(default)s."
        )
        parser.add_argument(
            "--seconds",
            type=float,
            default=60,
            help="How long everything may take; default: %(default)s.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Play the demo; exit code 1 if an order is not settled in time."""
        if not 1 <= options["orders"] <= MAX_ORDERS:
            raise CommandError(f"--orders {options['orders']}: give 1 to {MAX_ORDERS}.")
        try:
            with kafka() as servers, Stage() as stage:
                self._play(stage, servers, options)
        except StoppedError as error:
            sys.exit(error.exit_code)
        except (ChildError, DatabaseError, OSError) as error:
            raise CommandError(str(error).strip()) from error

    def _play(self, stage: Stage, servers: str, options: dict[str, Any]) -> None:
        self.stdout.write("Preparing the database …")
        call_command("migrate", verbosity=0)
        self.stdout.write(f"Starting supplier, worker and consumer; their logs are in {stage.logs}")
        start(stage, servers)
        before = Counter(Answer.objects.values_list("status", "kind"))
        purchases = [
            buy(ITEMS[number % len(ITEMS)], number + 1).pk for number in range(options["orders"])
        ]
        placed = Purchase.objects.filter(pk__in=purchases)
        waiting = placed.filter(state=Purchase.State.WAITING)
        self.stdout.write(f"Placed {len(purchases)} orders; waiting for the answers …")
        settled = stage.wait_until(lambda: not waiting.exists(), seconds=options["seconds"])
        self._tell(placed, before)
        for line in stage.troubles():
            self.stderr.write(line)
        if not settled:
            keys = ", ".join(purchase.key for purchase in waiting)
            raise CommandError(f"Not answered in time: {keys}.")

    def _tell(self, placed: Any, before: Counter[tuple[str, str]]) -> None:
        now = Counter(Answer.objects.values_list("status", "kind")) - before
        rows = {
            "confirmed": placed.filter(state=Purchase.State.CONFIRMED).count(),
            "refused": placed.filter(state=Purchase.State.REFUSED).count(),
            "answered twice, second answer ignored": now["duplicate", "response"],
            "malformed messages, kept in the inbox": now["unmatched", "malformed"],
        }
        self.stdout.write(f"\nWhat happened to {placed.count()} orders:")
        for name, number in rows.items():
            self.stdout.write(f"  {name:<42}{number}")


@contextmanager
def kafka() -> Iterator[str]:
    """Return the addresses of the brokers: those of the environment, else of a built-in one."""
    given = os.environ.get("KAFKA_BOOTSTRAP_SERVERS")
    if given:
        yield given
        return
    try:
        from example_project.demo.broker import BuiltInKafka
    except ImportError as error:
        raise CommandError("This demo needs Kafka: pip install 'hipq-django[kafka]'.") from error
    with BuiltInKafka() as cluster:
        yield cluster.bootstrap_servers


def start(stage: Stage, servers: str) -> None:
    """Start all processes."""
    supplier = stage.start(
        "supplier", "-m", "example_project.supplier", "--port=0", f"--kafka={servers}"
    )
    orders_url = f"{address(stage, supplier)}/orders"
    stage.start(
        "worker", "-m", "django", "hipq_worker", "--no-reload", "supplier", SUPPLIER_URL=orders_url
    )
    stage.start(
        "consumer", "-m", "django", "hipq_consume", "supplier", KAFKA_BOOTSTRAP_SERVERS=servers
    )


def address(stage: Stage, child: Child) -> str:
    """Wait until a server says where it serves."""
    if not stage.wait_until(child.address, seconds=START_SECONDS):
        raise ChildError(f"The {child.name} does not start.\n{child.last_words()}")
    return child.address()
