"""A worker that a test moves by hand, each of whose claims ends when and how the test says."""

from __future__ import annotations

from collections.abc import Sequence

from hipq_django.conf.instances import get_instance
from hipq_django.database.errors import DeclaredLostError
from hipq_django.domain.states import Phase
from hipq_django.maintenance import recovery
from hipq_django.models import Job
from hipq_django.scheduler.executor import execute
from hipq_django.transitions.values import Claim
from tests.factories import WorkerFactory
from tests.hand_worker import HandWorker
from tests.job_life.scripts import (
    Ending,
    Scripted,
    retry_at_once,
    return_value,
    usual,
    wait,
)

BESIDE = ("finish", "finish_and_save", "save")
"""What a worker does in other threads, beside its scheduler."""


class SteppedWorker(HandWorker):
    """A worker whose claims end one by one."""

    def __init__(self, code: Scripted, issued: set[tuple[int, int, Phase]]) -> None:
        super().__init__(threads=3, ahead=2)
        self.is_sure = True
        """Whether it knows of all that the database says is in its hands."""
        self._script = code.script
        self._issued = issued

    def run_pass(self) -> list[Job]:
        """Do a pass; a worker that was given up meanwhile goes on as a new one."""
        try:
            return super().run_pass()
        except DeclaredLostError:
            self.row = self.scheduler.worker = WorkerFactory.create()
            return []

    def start(self, claims: Sequence[Claim]) -> None:
        """Keep the claims; none may have been given out before."""
        for claim in claims:
            issue = (claim.id, claim.attempt, claim.phase)
            assert claim.phase is Phase.DECISION or issue not in self._issued, f"twice: {issue}"
            self._issued.add(issue)
        super().start(claims)

    def finish(self, claim: Claim, ending: Ending, decision: Ending) -> None:
        """Run the code of one claim; the next pass or `save` writes the result."""
        if claim not in self.claims:
            return  # another step was quicker
        self.claims.remove(claim)
        self._script.ending, self._script.decision = ending, decision
        if ending is usual:
            self._script.ending = wait if claim.phase is Phase.REQUEST else return_value
        self.batch.deliver(execute(claim))

    def finish_and_save(self, claim: Claim, ending: Ending, decision: Ending) -> None:
        """Do both at once."""
        self.finish(claim, ending, decision)
        self.save()

    def release_unconfirmed(self) -> None:
        """Put back what is in these hands without their knowing."""
        self.scheduler.release_unconfirmed()
        self.is_sure = True

    def work(self) -> list[Job]:
        """Claim, run and save; every request waits for its answer."""
        claimed = self.run_pass()
        while self.claims:
            self.finish(self.claims[0], usual, retry_at_once)
        self.save()
        return claimed

    def try_overdue_again(self) -> None:
        """Let overdue jobs time out, and claim them again while their handlers still execute."""
        recovery.time_out_overdue(get_instance("default"))
        self.run_pass()
        for claim in [claim for claim in self.claims if claim.phase is Phase.DECISION]:
            self.finish(claim, usual, retry_at_once)
        self.run_pass()
