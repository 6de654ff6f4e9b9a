"""`manage.py demo_flow`: three flows, run by a real worker that is killed in the middle."""

import sys
import time
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from django.db import DatabaseError

from example_project.demo.children import Child
from example_project.demo.management.commands.demo import (
    ADMIN_NAME,
    ADMIN_PASSWORD,
    address,
    create_admin,
)
from example_project.demo.stage import ChildError, Stage, StoppedError
from example_project.flows.flows import BOARD, FIBONACCI, ORDERS, readings
from hipq_django import flow

NUMBERS = (1, 1, 2, 3, 5, 8, 13, 21)
DOUBTFUL = (5, 13)
"""Which orders are so large that a person decides: the first is taken, the second is not."""
MAX_ORDERS = 1_000
OFTEN_SECONDS = 0.2
"""How often a reading is taken: in earnest that would be each five minutes."""
RATE = 3
MIN_READINGS = 10
"""So many readings the new node gets before the end: of these some are above the limit."""


class Clock:
    """How long the demo takes, and may take."""

    def __init__(self, seconds: float) -> None:
        self._began = time.monotonic()
        self._seconds = seconds

    @property
    def left(self) -> float:
        """How many seconds are left."""
        return max(0, self._began + self._seconds - time.monotonic())

    def tell(self) -> tuple[list[str], list[str]]:
        """Return how long it has taken, and what to do if that is too long."""
        lines = [f"All of it took {time.monotonic() - self._began:.0f} seconds."]
        late = f"It was to be done within {self._seconds:g} seconds; --seconds gives it more time."
        return lines, [] if self.left else [late]


class Command(BaseCommand):
    """Starts bank, shop and worker, sends messages, and shows what became of each."""

    help = "Run the flows of the example: orders, readings and Fibonacci's numbers."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument(
            "--orders", type=int, default=20, help="How many orders; default: %(default)s."
        )
        parser.add_argument(
            "--seconds",
            type=float,
            default=100,
            help="How long everything may take; default: %(default)s.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Play the demo; exit code 1 if anything is not as promised."""
        if not settings.DEBUG:
            raise CommandError("The demo makes an admin with a known password: set DEBUG=true.")
        if not 1 <= options["orders"] <= MAX_ORDERS:
            raise CommandError(f"--orders {options['orders']}: give 1 to {MAX_ORDERS}.")
        clock = Clock(options["seconds"])
        try:
            with Stage() as stage, stage.blaming_the_dead():
                self.stdout.write("Preparing the database …")
                call_command("migrate", verbosity=0)
                create_admin()
                self._play(stage, options["orders"], clock)
        except StoppedError as error:
            sys.exit(error.exit_code)
        except (ChildError, DatabaseError, OSError) as error:
            raise CommandError(str(error).strip()) from error

    def _play(self, stage: Stage, count: int, clock: Clock) -> None:
        self.stdout.write(f"Starting bank, shop and worker; their logs are in {stage.logs}")
        bank = address(stage, stage.start("bank", "-m", "example_project.bank", "--port=0"))
        shop = stage.start("shop", "-m", "django", "runserver", "--noreload", "127.0.0.1:0")
        urls = {"BANK_URL": f"{bank}/payments", "SITE_URL": address(stage, shop)}
        worker = start_worker(stage, "worker", urls)
        orders, numbers = flow.start(ORDERS), flow.start(FIBONACCI)
        lab, board = flow.start(readings(OFTEN_SECONDS)), flow.start(BOARD)
        self.stdout.write(f"Writing {count} orders, and the numbers 1 to {len(NUMBERS)} …")
        ids = send_orders(orders, count)
        for n in range(1, len(NUMBERS) + 1):
            numbers.inputs["n"].write(n)
        stage.wait_until(lambda: ends_of(orders), seconds=clock.left)
        self._kill(stage, worker, ends_of(orders))
        start_worker(stage, "worker-2", urls)
        lab.inputs["rate"].write(RATE)
        lab.apply(readings(OFTEN_SECONDS, with_all=True))
        self.stdout.write(
            f"While readings flow, their rate became {RATE}, and their graph got a second total."
        )
        self._await(stage, orders, numbers, lab, len(ids), clock)
        terminate(orders, lab, board, numbers)
        told = tell_orders(orders, ids), tell_readings(lab, board), tell_numbers(numbers)
        self._tell(*told, clock.tell())

    def _tell(self, *told: tuple[list[str], list[str]]) -> None:
        """Print what became of all, and where it can be seen."""
        for lines, _ in told:
            self.stdout.write("\n" + "\n".join(lines))
        self.stdout.write(
            "\nThe nodes and their jobs stay in the database: `make demo` shows them in its admin\n"
            f"(log in as {ADMIN_NAME}, password {ADMIN_PASSWORD}), under Flows, Nodes."
        )
        if broken := [sentence for _, sentences in told for sentence in sentences]:
            raise CommandError("Not as promised:\n" + "\n".join(broken))

    def _kill(self, stage: Stage, worker: Child, ends: int) -> None:
        self.stdout.write(
            f"{ends} of the orders came out. Killing the worker, and starting another …"
        )
        stage.kill(worker)

    def _await(
        self,
        stage: Stage,
        orders: flow.Node,
        numbers: flow.Node,
        lab: flow.Node,
        count: int,
        clock: Clock,
    ) -> None:
        """Decide what is doubtful, until all has come out."""
        human = orders.children["human"]

        def is_done() -> bool:
            for order in human.inputs["order"]:
                port = "yes" if order["id"].endswith(f"-{DOUBTFUL[0]}") else "no"
                self.stdout.write(f"  a person looks at {order['id']} and says {port}")
                human.outputs[port].write(order)
            second = lab.child("all")
            return (
                ends_of(orders) == count
                and numbers.outputs["result"].size == len(NUMBERS)
                and second is not None
                and counted(second)["count"] >= MIN_READINGS
            )

        stage.wait_until(is_done, seconds=clock.left)


def start_worker(stage: Stage, name: str, urls: dict[str, str]) -> Child:
    """Start a worker; one that is killed counts as lost after three seconds."""
    return stage.start(
        name, "-m", "django", "hipq_worker", "--no-reload", **urls, HEARTBEAT_SECONDS="1"
    )


def terminate(*nodes: flow.Node) -> None:
    """Let the nodes shut down, with all below them."""
    for node in nodes:
        node.terminate(recursive=True)


def send_orders(node: flow.Node, count: int) -> list[str]:
    """Write orders, of which two are doubtful; return their ids."""
    ids = []
    for number in range(count):
        order = {"id": f"flow-{node.pk}-{number}", "total": 950 if number in DOUBTFUL else 70}
        node.inputs["order"].write(order)
        ids.append(order["id"])
    return [str(pk) for pk in ids]


def ends_of(orders: flow.Node) -> int:
    """Return how many orders have come out."""
    return sum(port.size for port in orders.outputs.values())


def tell_orders(node: flow.Node, ids: list[str]) -> tuple[list[str], list[str]]:
    """Return what became of the orders, and what is not as promised."""
    shipped = {end["data"]["id"]: end["result"]["parcel"] for end in node.outputs["shipped"]}
    failed = {end["data"]["id"]: end["error"] for end in node.outputs["failed"]}
    refused = {order["id"]: "a person said no" for order in node.outputs["refused"]}
    said = {
        **{pk: f"shipped as {parcel}" for pk, parcel in shipped.items()},
        **{pk: f"not paid: {error}" for pk, error in failed.items()},
        **refused,
    }
    lines = [f"{len(ids)} orders:", *(f"  {pk:<16}{said.get(pk, 'still under way')}" for pk in ids)]
    once = len(shipped) + len(failed) + len(refused) == len(said) == len(ids)
    return lines, [] if once else ["Not each order has come out once."]


def counted(total: flow.Node) -> dict[str, int]:
    """Return how many readings a node has summed up on all days, and their total."""
    days = total.state.get("days", {}).values()
    return {key: sum(day[key] for day in days) for key in ("count", "total")}


def tell_readings(node: flow.Node, board: flow.Node) -> tuple[list[str], list[str]]:
    """Return what the totals are, and what is not as promised."""
    large, every = counted(node.children["total"]), counted(node.children["all"])
    shown = sum(board.children["board"].state.all().values())
    lines = [
        f"Readings: {large['count']} above the limit, {large['total']} in total with their rates;",
        f"  since the change {every['count']} of all, {every['total']} in total;",
        f"  the board, another graph, shows {shown}, which it got through a channel.",
    ]
    wrong = [] if every["count"] else ["The new node of the graph got no reading."]
    return lines, wrong if 0 < shown <= large["total"] else [*wrong, "The board shows no total."]


def tell_numbers(node: flow.Node) -> tuple[list[str], list[str]]:
    """Return Fibonacci's numbers, and what is not as promised."""
    found = {result["n"]: result["number"] for result in node.outputs["result"]}
    numbers = tuple(found.get(n) for n in range(1, len(NUMBERS) + 1))
    lines = [f"Fibonacci: {', '.join(map(str, numbers))}"]
    return lines, [] if numbers == NUMBERS else [f"Fibonacci's numbers are {NUMBERS}."]
