"""Components for real worker processes."""

import time
from pathlib import Path
from typing import Any

import hipq_django as hipq
from hipq_django import flow
from tests.processapp.jobs import POLL_SECONDS


@flow.component("pass_on", queue="chaos", runs_per_minute=100_000)
def pass_on(x: Any) -> Any:
    """Hand on what comes."""
    return x


@flow.component(
    "pass_on_slowly",
    queue="chaos",
    runs_per_minute=100_000,
    retry=hipq.Fixed(0, max_attempts=20),
)
def pass_on_slowly(x: int) -> int:
    """Hand on what comes, so slowly that a full run takes some tenths of a second."""
    if x % 10 == 0:
        time.sleep(0.003)
    return x


@flow.component("says_so", queue="chaos", retry=hipq.Fixed(0, max_attempts=10))
class SaysSo(flow.Component):
    """Writes down that it was called, waits for its gate, and hands on what lies there."""

    x, out = flow.In(), flow.Out()

    def perform(self, performed: str, gate: str = "") -> None:
        with Path(performed).open("a") as file:
            file.write(f"{self.node.pk}\n")
        while gate and not Path(gate).exists():
            time.sleep(POLL_SECONDS)
        for x in self.x:
            self.out.write(x)
