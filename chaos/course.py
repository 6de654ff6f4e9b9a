"""The course of a cell: load, faults in the load, calm, and what is there in the end."""

from __future__ import annotations

import random
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from django.db import Error, connection

from chaos.clients import Bank, Client, Loop, Operator, stream_loop
from chaos.collecting import beating, collected, wall_time
from chaos.evidence import Crew
from chaos.ledger import now
from chaos.orders import EVERYDAY, TOMORROW
from chaos.run import LEDGER
from chaos.sampling import Sampler
from chaos.stage import Stage
from hipq_django.models import Job, Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from chaos.databases import Database
    from chaos.disk import Disk
    from chaos.evidence import Evidence
    from chaos.fleet import Fleet
    from chaos.proxy import Proxy
    from chaos.run import Run

CALM_SECONDS = 5.0
"""Load before the first fault; no longer than faults are made, so that a trial is short."""
AFTER_SECONDS = 8.0
"""Load after the last fault; likewise."""
START_SECONDS = 60.0
LOOK_SECONDS = 0.1
RECEIPTS = "CREATE TABLE chaos_receipt (name text NOT NULL)"


class Course:
    """Runs the phases of a cell one after the other."""

    def __init__(
        self,
        run: Run,
        database: Database,
        fleet: Fleet,
        proxy: Proxy | None,
        disk: Disk | None,
    ) -> None:
        self._run, self._fleet, self._ledger = run, fleet, fleet.ledger
        chance = random.Random(run.seed)
        self._client = Client(self._ledger)
        self._operator = Operator(self._ledger, self._client, chance)
        self._bank = Bank(self._ledger, run.folder / LEDGER, chance)
        self._sampler = Sampler(database)
        self.stage = Stage(
            database, fleet, self._ledger, self._client, chance, run.beat, proxy, disk
        )

    def run(self) -> Evidence:
        """Run the cell and return what is known of it then."""
        self.stage.run(RECEIPTS)
        self._run.cell.prepare(self.stage)
        self._start_workers()
        self._sampler.open()
        answering = Loop(self._bank.step)
        answering.open()
        self._load_with_faults()
        self._settle()
        crew = self._end_workers()
        answering.close()
        self._bank.close()
        return collected(self._run, self._sampler.close(), crew)

    def _start_workers(self) -> None:
        cell = self._run.cell
        if cell.has_clock:
            self._fleet.start_apart()
        for _ in range(cell.workers - cell.has_clock):
            self._fleet.start()
        _await(lambda: beating() == self._expected, START_SECONDS)

    @property
    def _expected(self) -> int:
        return self._run.cell.workers * self._run.cell.processes

    # Load and faults

    def _load_with_faults(self) -> None:
        loops = self._loops()
        self._ledger.write("load")
        for loop in loops:
            loop.open()
        time.sleep(min(CALM_SECONDS, self._run.seconds))
        self._make_faults()
        time.sleep(min(AFTER_SECONDS, self._run.seconds))
        self._ledger.write("load over")
        for loop in loops:
            loop.close()
        _insist(self._operator.resume)

    def _loops(self) -> list[Loop]:
        samples, cell = self._sampler.samples, self._run.cell
        streams = [
            stream_loop(
                stream,
                cell.load,
                self._client,
                lambda: samples.live,
                random.Random(f"{self._run.seed} {stream.name}"),
            )
            for stream in EVERYDAY
        ]
        return [*streams, Loop(self._operator.cancel_some), Loop(self._operator.turn)]

    def _make_faults(self) -> None:
        cell, chance = self._run.cell, self.stage.chance
        until = now() + self._run.seconds
        while now() < until:
            if cell.is_calm:
                time.sleep(self._run.seconds)
                return
            self._ledger.write("fault")
            cell.fault(self.stage)
            self._ledger.write("calm")
            self._fleet.count_dead()
            time.sleep(chance.uniform(*cell.pause))

    # The end

    def _settle(self) -> None:
        """Wait until all is done that is to be done, or for as long as the cell allows."""
        self._fleet.clock.write_text("0")
        _await(_is_settled, self._run.cell.settle)
        # A worker that was given up, or has just started, has a beat to show itself.
        _await(lambda: beating() == self._expected, 2 * self.stage.silence)

    def _end_workers(self) -> Crew:
        self._fleet.count_dead()
        lost = Worker.objects.filter(state=Worker.State.LOST).count()
        pids = tuple(self._fleet.pids())
        return Crew(self._expected, beating(), lost, pids, self._fleet.stop())


def _is_settled() -> bool:
    """Whether nothing is unfinished but what is for another day."""
    return (
        not Job.objects.live()
        .filter(scheduled_run_time__lt=wall_time(now() + TOMORROW / 2))
        .exists()
    )


def _await(condition: Callable[[], bool], seconds: float) -> None:
    """Wait until the condition holds, or the time is over."""
    until = now() + seconds
    while now() < until:
        with suppress(Error):
            if condition():
                return
        connection.close_if_unusable_or_obsolete()
        time.sleep(LOOK_SECONDS)


def _insist(step: Callable[[], None]) -> None:
    """Do something, again while the database fails."""
    while True:
        try:
            step()
        except Error:
            connection.close()
            time.sleep(LOOK_SECONDS)
        else:
            return
