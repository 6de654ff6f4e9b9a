"""`manage.py demo_orders` as a user runs it: real processes, HTTP, and Kafka's protocol."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.conftest import ROOT
from tests.plugin import renamed
from tests.processes.conftest import eventually

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.embedded]

PATIENCE_SECONDS = 120


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a demo on an empty database of the kind this run is about."""
    own = os.environ | {
        "DJANGO_SETTINGS_MODULE": "example_project.settings",
        "TMPDIR": str(tmp_path),
        "PYTHONUNBUFFERED": "1",
    }
    url = os.environ["DATABASE_URL"]
    if not url.startswith("postgres"):
        yield own | {"DATABASE_URL": f"sqlite:///{tmp_path}/demo.sqlite3"}
        return
    name = f"demo_orders_{os.getpid()}"
    with psycopg.connect(renamed(url, "postgres"), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {name}")
        yield own | {"DATABASE_URL": renamed(url, name)}
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def start(environment: dict[str, str], output: Path, *arguments: str) -> subprocess.Popen[bytes]:
    with output.open("wb") as out:
        return subprocess.Popen(
            [sys.executable, "manage.py", "demo_orders", *arguments],
            cwd=ROOT,
            env=environment,
            stdout=out,
            stderr=out,
        )


def test_every_order_is_answered_through_kafka_also_in_a_second_demo(
    environment: dict[str, str], tmp_path: Path
) -> None:
    """The second one has a new cluster, whose offsets begin at 0 once more."""
    for _ in range(2):
        output = tmp_path / "output"
        demo = start(environment, output, "--orders=10")

        code = demo.wait(PATIENCE_SECONDS)

        text = output.read_text()
        assert code == 0, text
        rows = dict(line.rsplit(None, 1) for line in text.splitlines() if line.startswith("  "))
        counts = {name.strip(): int(number) for name, number in rows.items()}
        assert (counts["confirmed"], counts["refused"]) == (8, 2)
        assert counts["malformed messages, kept in the inbox"] > 0
    assert list(tmp_path.glob("hipq-demo-*")) == []


def test_a_demo_that_is_stopped_leaves_no_process_behind(
    environment: dict[str, str], tmp_path: Path
) -> None:
    output = tmp_path / "output"
    demo = start(environment, output, "--orders=1000")
    eventually(lambda: "Starting" in output.read_text(), "the demo starts its processes")

    demo.send_signal(signal.SIGTERM)

    assert demo.wait(PATIENCE_SECONDS) == 143
    assert list(tmp_path.glob("hipq-demo-*")) == []
