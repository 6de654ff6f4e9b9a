"""The demos as a user runs them: real processes, real HTTP, a database of their own."""

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from urllib.request import urlopen

import pytest

from tests.conftest import ROOT
from tests.processes.conftest import eventually

pytestmark = [pytest.mark.processes, pytest.mark.embedded]

PATIENCE_SECONDS = 180
"""How long a test waits for what should take much less, on a machine that has other work."""

ROW = re.compile(r"^  (?P<name>.+?) {2,}(?P<number>\d+)", re.MULTILINE)


class Demo:
    """A demo that runs; what it prints can be read while it does."""

    def __init__(self, variables: dict[str, str], *command: str, stdin: int) -> None:
        self.folder = Path(variables["TMPDIR"])
        self._output = self.folder / "output"
        self.children: set[int] = set()
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-u", "manage.py", *command],
                cwd=ROOT,
                env=variables,
                stdin=stdin,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def output(self) -> str:
        """What it has printed so far."""
        return self._output.read_text()

    def wait_for(self, text: str) -> None:
        """Wait until it has printed this; fail if it ends before."""
        eventually(
            lambda: text in self.output or self.process.poll() is not None,
            f"the demo prints {text!r}",
            PATIENCE_SECONDS,
        )
        assert text in self.output, self.output

    def wait_for_children(self) -> None:
        """Wait until bank, shop and worker run."""
        self.wait_for("Sending")
        pid = self.process.pid
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        self.children = {int(child) for child in listed}
        assert len(self.children) == 3

    def worker(self) -> int:
        """Return the process of its worker, known by its command: numbers of processes wrap."""
        eventually(self._workers, "one of the demo's children is a worker", PATIENCE_SECONDS)
        [worker] = self._workers()
        return worker

    def _workers(self) -> list[int]:
        """Its children that are workers; while a process starts, its command is empty."""
        return [
            child
            for child in self.children
            if b"hipq_worker" in Path(f"/proc/{child}/cmdline").read_bytes()
        ]

    def wait(self) -> int:
        """Wait for its end, after which no process is left, and logs where it has failed."""
        code = self.process.wait(PATIENCE_SECONDS)
        assert self.running() == set()
        assert code == 1 or not list(self.folder.glob("hipq-demo-*"))
        return code

    def table(self) -> dict[str, int]:
        """Return the numbers of the table of what happened."""
        return {row["name"]: int(row["number"]) for row in ROW.finditer(self.output)}

    def running(self) -> set[int]:
        """Return those of its children that still run."""
        return {child for child in self.children if is_running(child)}

    def kill(self) -> None:
        """End it and all that it started."""
        for pid in (*self.children, self.process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


def is_running(pid: int) -> bool:
    """Return whether a process lives."""
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Demo]]:
    """Starts demos on one database that is empty at first, without a terminal unless told so."""
    demos = []
    variables = os.environ | {
        "DATABASE_URL": f"sqlite:///{tmp_path}/demo.sqlite3",
        "DJANGO_SETTINGS_MODULE": "example_project.settings",
    }

    def start_demo(*command: str, stdin: int = subprocess.DEVNULL, **changed: str) -> Demo:
        own = {"TMPDIR": mkdtemp(dir=tmp_path)}
        demos.append(Demo(variables | own | changed, *command, stdin=stdin))
        return demos[-1]

    yield start_demo
    for demo in demos:
        demo.kill()


@pytest.fixture
def terminal() -> Iterator[int]:
    """The end of a terminal that a program has as its input."""
    ours, theirs = pty.openpty()
    yield theirs
    os.close(theirs)
    os.close(ours)


def test_the_demo_shows_what_becomes_of_orders_stays_up_and_leaves_at_ctrl_c(
    start: Callable[..., Demo], terminal: int
) -> None:
    demo = start("demo", "--orders=2", stdin=terminal)
    demo.wait_for_children()
    demo.wait_for("Ctrl-C ends the demo")

    table = demo.table()
    assert (table["cards charged, as the bank counts"], table["declined for good"]) == (1, 1)
    assert re.search(r'^Errors that belong to the story:[\s\S]+"card stolen"', demo.output, re.M)
    assert "paid" in page(demo, "Shop: ")
    assert "Log in" in page(demo, "Admin:")

    demo.process.send_signal(signal.SIGINT)

    assert demo.wait() == 0


def page(demo: Demo, name: str) -> str:
    """Return the page at an address that the demo has told."""
    address = re.search(rf"{name} (http\S+)", demo.output)
    assert address is not None
    with urlopen(address[1], timeout=PATIENCE_SECONDS) as reply:
        return str(reply.read(), "utf-8")


@pytest.mark.nightly
def test_thirty_orders_show_every_case(start: Callable[..., Demo]) -> None:
    # On a machine with other work an answer may take long, which is none of the cases.
    demo = start("demo", "--seconds=150", BANK_TIMEOUT_SECONDS="8")

    assert demo.wait() == 0, demo.output
    table = demo.table()
    assert min(table.values()) > 0
    assert table["paid at the first request"] + table["declined for good"] < 30
    assert table["cards charged, as the bank counts"] + table["declined for good"] == 30
    assert 3 <= table["most in flight in the bank at once"] <= 6
    assert "of 6 allowed" in demo.output


def test_a_demo_that_may_not_start_says_why(start: Callable[..., Demo]) -> None:
    demo = start("demo", DATABASE_URL="sqlite:////no/such/folder/file")

    assert demo.wait() == 1
    assert "unable to open database file" in demo.output
    assert "Traceback" not in demo.output


# Flows


@pytest.mark.nightly
def test_each_order_comes_out_once_though_a_worker_is_killed(start: Callable[..., Demo]) -> None:
    demo = start("demo_flow", "--orders=14")

    assert demo.wait() == 0, demo.output
    for pattern, times in {
        r"^  flow-\d+-\d+ +(shipped as|not paid|a person)": 14,
        r"flow-\d+-5 +shipped as": 1,
        r"flow-\d+-13 +a person said no": 1,
        r"Readings: \d+ above the limit": 1,
        r"the board, another graph, shows \d+": 1,
        "Fibonacci: 1, 1, 2, 3, 5, 8, 13, 21": 1,
        r"All of it took \d+ seconds\.": 1,
    }.items():
        assert len(re.findall(pattern, demo.output, re.M)) == times, pattern


# Answers through Kafka


@pytest.mark.nightly
def test_every_order_is_answered_through_kafka_also_in_a_second_demo(
    start: Callable[..., Demo],
) -> None:
    """The second one has a new cluster, whose offsets begin at 0 once more."""
    for _ in range(2):
        demo = start("demo_orders", "--orders=10")

        assert demo.wait() == 0, demo.output
        table = demo.table()
        assert (table["confirmed"], table["refused"]) == (8, 2)
        assert table["malformed messages, kept in the inbox"] > 0


# One queue over two databases


@pytest.mark.nightly
def test_two_databases_share_a_limit_though_one_is_stopped(start: Callable[..., Demo]) -> None:
    with TemporaryDirectory(prefix="hipq-") as folder:
        Path(folder).chmod(0o755)  # if this is root, the servers are run by another user
        demo = start("demo_shards", TMPDIR=folder)

        assert demo.wait() == 0, demo.output
        assert "jobs_1 does not answer" in demo.output
        assert "Most at once in both databases: 6 of 6 allowed" in demo.output
