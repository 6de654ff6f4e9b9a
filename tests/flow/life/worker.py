"""A worker that a test moves by hand, whose runs end one by one as the test says."""

from __future__ import annotations

from hipq_django.database.errors import DeclaredLostError
from hipq_django.models import Job
from hipq_django.scheduler.executor import execute
from hipq_django.transitions.values import Claim
from tests.factories import WorkerFactory
from tests.flow.life.scripts import Ending
from tests.hand_worker import HandWorker
from tests.testapp.flows import SCRIPT


class SteppedFlowWorker(HandWorker):
    """Claims runs, and ends each when and how the test says."""

    def __init__(self) -> None:
        super().__init__(threads=3)

    def run_pass(self) -> list[Job]:
        """Do a pass; a worker that was given up meanwhile goes on as a new one."""
        try:
            return super().run_pass()
        except DeclaredLostError:
            self.row = self.scheduler.worker = WorkerFactory.create()
            return []

    def finish(self, claim: Claim, ending: Ending) -> None:
        """Run the code of one claim; the next pass or `save` writes what it did."""
        if claim not in self.claims:
            return  # another step was quicker
        self.claims.remove(claim)
        SCRIPT.perform = ending
        self.batch.deliver(execute(claim))

    def finish_and_save(self, claim: Claim, ending: Ending) -> None:
        """Do both at once."""
        self.finish(claim, ending)
        self.save()
