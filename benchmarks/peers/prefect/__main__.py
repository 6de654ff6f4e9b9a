"""The runner of Prefect, with the server that its workers report to."""

from __future__ import annotations

import atexit
import os
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.request
from typing import TYPE_CHECKING

from benchmarks.measuring.handlers import folder
from benchmarks.measuring.measurements import WrongResultError
from benchmarks.measuring.runner import Runner, main
from benchmarks.measuring.workers import log_path
from benchmarks.peers.prefect.flows import Waiting

if TYPE_CHECKING:
    from collections.abc import Sequence

START_SECONDS = 90
HOST = "127.0.0.1"


class PrefectRunner(Runner):
    """Prefect by a server and processes that run flows."""

    def prepare(self) -> None:
        """Start the server, for this run alone; it makes its tables."""
        port = _free_port()
        os.environ.update(_settings(port))
        command = [sys.executable, "-m", "prefect", "server", "start"]
        with log_path().open("ab") as log:
            server = subprocess.Popen(
                [*command, "--host", HOST, "--port", str(port)], stdout=log, stderr=log
            )
        atexit.register(server.terminate)
        _await_server(port)

    def enqueue(self, kind: str, number: int) -> None:
        """Refuse: only flows are measured."""
        raise WrongResultError("Prefect is measured by its flows")

    def start_pipelines(self, numbers: Sequence[int]) -> None:
        """Leave so many for the workers to begin."""
        Waiting(folder()).add(len(numbers))

    def unfinished(self) -> int:
        """Count the flows that have not ended well, of all that were to be begun."""
        with sqlite3.connect(_file()) as database:
            query = "SELECT count(*) FROM flow_run WHERE state_type = 'COMPLETED'"
            (number,) = database.execute(query).fetchone()
        return Waiting(folder()).ever() - int(number)

    def worker(self, concurrency: int | None = None) -> list[str]:
        """Return the command."""
        return [sys.executable, "-m", "benchmarks.peers.prefect.flows"]


def _settings(port: int) -> dict[str, str]:
    return {
        "DO_NOT_TRACK": "1",
        "PREFECT_API_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{_file()}",
        "PREFECT_API_URL": f"http://{HOST}:{port}/api",
        "PREFECT_HOME": str(folder() / "prefect"),
        "PREFECT_LOGGING_LEVEL": "ERROR",
        "PREFECT_LOGGING_TO_API_ENABLED": "false",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    }


def _file() -> str:
    return str(folder() / "prefect.sqlite3")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _await_server(port: int) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        try:
            with urllib.request.urlopen(f"http://{HOST}:{port}/api/health"):
                return
        except OSError:
            time.sleep(0.1)
    raise WrongResultError(f"the server of Prefect did not start in {START_SECONDS} s")


if __name__ == "__main__":
    main(PrefectRunner())
