"""`manage.py demo` as a user runs it: real processes, real HTTP, a database of its own."""

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

import psycopg
import pytest

from tests.conftest import ROOT
from tests.plugin import renamed
from tests.processes.conftest import eventually

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.embedded]

PATIENCE_SECONDS = 120
"""How long a test waits for what should take much less, on a machine that has other work."""

ROW = re.compile(r"^  (?P<name>.+?) {2,}(?P<number>\d+)", re.MULTILINE)


class Demo:
    """A demo that runs; what it prints can be read while it does."""

    def __init__(self, variables: dict[str, str], *arguments: str, stdin: int) -> None:
        self._output = Path(variables["TMPDIR"]) / "output"
        self.children: set[int] = set()
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-u", "manage.py", "demo", *arguments],
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
        """Wait for its end; return its exit code."""
        return self.process.wait(PATIENCE_SECONDS)

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
def variables(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a demo on an empty database of the kind this run is about."""
    own = {"DJANGO_SETTINGS_MODULE": "example_project.settings", "TMPDIR": str(tmp_path)}
    url = os.environ["DATABASE_URL"]
    if not url.startswith("postgres"):
        yield os.environ | own | {"DATABASE_URL": f"sqlite:///{tmp_path}/demo.sqlite3"}
        return
    name = f"demo_{os.getpid()}"
    with created_database(url, name):
        yield os.environ | own | {"DATABASE_URL": renamed(url, name)}


@contextmanager
def created_database(url: str, name: str) -> Iterator[None]:
    drop = f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"
    with psycopg.connect(renamed(url, "postgres"), autocommit=True) as connection:
        connection.execute(drop)
        connection.execute(f"CREATE DATABASE {name}")
        yield
        connection.execute(drop)


@pytest.fixture
def start(variables: dict[str, str]) -> Iterator[Callable[..., Demo]]:
    """Starts demos, without a terminal unless told otherwise."""
    demos = []

    def start_demo(*arguments: str, stdin: int = subprocess.DEVNULL, **changed: str) -> Demo:
        demos.append(Demo(variables | changed, *arguments, stdin=stdin))
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


def test_the_demo_shows_every_case_stays_up_and_leaves_at_ctrl_c(
    start: Callable[..., Demo], terminal: int, tmp_path: Path
) -> None:
    demo = start(stdin=terminal)
    demo.wait_for_children()
    demo.wait_for("Ctrl-C ends the demo")

    table = demo.table()
    assert min(table.values()) > 0
    assert table["paid at the first request"] + table["declined for good"] < 30
    assert table["cards charged, as the bank counts"] + table["declined for good"] == 30
    assert 3 <= table["most in flight in the bank at once"] <= 6
    assert "of 6 allowed" in demo.output
    assert "paid" in page(demo, "Shop: ")
    assert "Log in" in page(demo, "Admin:")

    demo.process.send_signal(signal.SIGINT)

    assert demo.wait() == 0
    assert demo.running() == set()
    assert list(tmp_path.glob("hipq-demo-*")) == []


def page(demo: Demo, name: str) -> str:
    """Return the page at an address that the demo has told."""
    address = re.search(rf"{name} (http\S+)", demo.output)
    assert address is not None
    with urlopen(address[1], timeout=PATIENCE_SECONDS) as reply:
        return str(reply.read(), "utf-8")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_demo_that_is_stopped_halfway_leaves_no_process_behind(
    start: Callable[..., Demo], number: signal.Signals, code: int
) -> None:
    demo = start()
    demo.wait_for_children()

    demo.process.send_signal(number)

    assert demo.wait() == code
    assert demo.running() == set()


def test_a_demo_whose_worker_dies_says_so_and_where_the_logs_are(
    start: Callable[..., Demo], tmp_path: Path
) -> None:
    demo = start()
    demo.wait_for_children()

    os.kill(demo.worker(), signal.SIGKILL)

    assert demo.wait() == 1
    [logs] = tmp_path.glob("hipq-demo-*")
    assert "The worker has ended by itself" in demo.output
    assert f"The end of {logs / 'worker.log'}" in demo.output
    assert {log.name for log in logs.iterdir()} == {"bank.log", "shop.log", "worker.log"}
    assert demo.running() == set()


def test_orders_that_are_not_settled_in_time_are_named_and_settled_by_the_next_demo(
    start: Callable[..., Demo],
) -> None:
    hasty = start("--orders=2", "--seconds=0")

    assert hasty.wait() == 1
    assert "Not as promised:\nNot settled: order-1" in hasty.output

    patient = start("--orders=1")

    assert patient.wait() == 0, patient.output
    assert "What happened to 3 orders" in patient.output


@pytest.mark.parametrize(
    ("arguments", "changed", "message"),
    [
        (["--orders=0"], {}, "--orders 0: give 1 to 1000"),
        ([], {"DEBUG": "false", "SECRET_KEY": "secret"}, "set DEBUG=true"),
        ([], {"DATABASE_URL": "sqlite:////no/such/folder/file"}, "unable to open database file"),
    ],
)
def test_a_demo_that_may_not_start_says_why(
    start: Callable[..., Demo], arguments: list[str], changed: dict[str, str], message: str
) -> None:
    demo = start(*arguments, **changed)

    assert demo.wait() == 1
    assert message in demo.output
    assert "Traceback" not in demo.output
