"""The runner of DBOS."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from dbos import DBOS, DBOSClient

from benchmarks.measuring.measurements import WrongResultError
from benchmarks.measuring.postgres import ask
from benchmarks.measuring.runner import Runner, main
from benchmarks.peers.dbos.flows import QUEUE, WORKFLOW, address, launch

if TYPE_CHECKING:
    from collections.abc import Sequence


class DbosRunner(Runner):
    """DBOS by its client and a worker."""

    def prepare(self) -> None:
        """Make the tables and the queue."""
        launch()
        DBOS.destroy()

    def enqueue(self, kind: str, number: int) -> None:
        """Refuse: only workflows are measured."""
        raise WrongResultError("DBOS is measured by its workflows")

    def start_pipelines(self, numbers: Sequence[int]) -> None:
        """Enqueue a workflow for each."""
        client = DBOSClient(system_database_url=address())
        for number in numbers:
            client.enqueue(
                {"queue_name": QUEUE, "workflow_name": WORKFLOW, "app_version": "1"}, number
            )
        client.destroy()

    def unfinished(self) -> int:
        """Count the workflows that have not ended."""
        return ask("SELECT count(*) FROM dbos.workflow_status WHERE status <> 'SUCCESS'")

    def worker(self, concurrency: int | None = None) -> list[str]:
        """Return the command."""
        return [sys.executable, "-m", "benchmarks.peers.dbos.flows"]


if __name__ == "__main__":
    main(DbosRunner())
