"""The cells of the matrix: each a fault, the databases it is for, and what it excuses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos import orders
from chaos.databases import POSTGRES, SQLITE
from chaos.evidence import Bounds
from chaos.faults import network, processes, rows, server

if TYPE_CHECKING:
    from collections.abc import Callable

    from chaos.stage import Stage

    Fault = Callable[[Stage], None]

BOTH = (POSTGRES, SQLITE)
STRICT = Bounds()
"""Nothing is excused."""


def _nothing(stage: Stage) -> None:
    """Do nothing."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One row of the report, on each of its databases."""

    name: str
    title: str
    meaning: str
    """What is done to the system, for a reader who knows neither it nor the code."""
    fault: Fault = _nothing
    databases: tuple[str, ...] = (POSTGRES,)
    pause: tuple[float, float] = (1.0, 3.0)
    """How long everything is well between two faults, in seconds."""
    prepare: Fault = _nothing
    bounds: Bounds = STRICT
    workers: int = 3
    processes: int = 1
    """Of each worker command."""
    load: float = 1.0
    """The share of the everyday load."""
    is_wired: bool = False
    """Whether workers reach the database through a network that can fail."""
    is_all_wired: bool = False
    """Whether those who enqueue and answer do so too."""
    needs_disk: bool = False
    has_clock: bool = False
    """Whether one of the workers is on a machine whose clock can be set."""
    settle: float = 60.0
    """How long jobs may take to end after load and faults, in seconds."""

    @property
    def is_calm(self) -> bool:
        """Whether nothing is done in it."""
        return self.fault is _nothing


CELLS = (
    Cell(
        name="calm",
        title="No fault",
        meaning="Nothing is done.",
        databases=BOTH,
        bounds=Bounds(longest_wait=5, recovery=None),
    ),
    # The server
    Cell(
        name="server-restart",
        title="Server restarted",
        meaning="`pg_ctl stop -m fast`; the server is back within a second.",
        fault=server.restart,
    ),
    Cell(
        name="server-crash",
        title="Server crashes",
        meaning="`pg_ctl stop -m immediate`, and a recovery from the log.",
        fault=server.crash,
    ),
    Cell(
        name="server-killed",
        title="Server killed",
        meaning="SIGKILL to the server's main process.",
        fault=server.kill,
    ),
    Cell(
        name="outage",
        title="Long outage",
        meaning=(
            "The server is away for longer than three heartbeats. No worker may be declared lost "
            "because of that."
        ),
        fault=server.outage,
        pause=(3.0, 5.0),
    ),
    Cell(
        name="outage-reserved",
        title="Outage amid reservations",
        meaning=(
            "The server stops while quick jobs are claimed ahead of threads that slow jobs hold. No"
            " job may fail that had not started."
        ),
        fault=server.outage_of_reserved,
        pause=(4.0, 6.0),
    ),
    Cell(
        name="sessions-ended",
        title="Sessions ended",
        meaning="All sessions are ended with `pg_terminate_backend`, again and again.",
        fault=server.end_sessions,
    ),
    Cell(
        name="no-slots",
        title="No connections left",
        meaning=(
            "Another client takes every connection that `max_connections` allows, for three to six "
            "seconds."
        ),
        fault=server.use_up_slots,
    ),
    Cell(
        name="disk-full",
        title="Disk full",
        meaning="A file takes all the free space of the database's disk, for two to five seconds.",
        fault=rows.fill_the_disk,
        databases=BOTH,
        needs_disk=True,
    ),
    # Processes and machines
    Cell(
        name="workers-killed",
        title="Workers killed",
        meaning="Every one to three seconds a worker is killed (SIGKILL), and a new one started.",
        fault=processes.kill_a_worker,
        databases=BOTH,
        bounds=Bounds(may_lose=True),
    ),
    Cell(
        name="workers-stopped",
        title="Workers stopped for a moment",
        meaning="SIGSTOP for up to one heartbeat. No worker may be declared lost.",
        fault=processes.suspend_shortly,
        databases=BOTH,
    ),
    Cell(
        name="workers-suspended",
        title="Workers suspended for long",
        meaning="SIGSTOP for six heartbeats or more amid quick jobs; then the worker goes on.",
        fault=processes.suspend_for_long,
        databases=BOTH,
        pause=(2.0, 3.0),
        bounds=Bounds(may_lose=True),
    ),
    Cell(
        name="given-up",
        title="Living workers given up",
        meaning=(
            "The row of a living worker is marked as lost. It must notice, start nothing in "
            "between, and go on as a new worker."
        ),
        fault=processes.give_up_a_living_worker,
        databases=BOTH,
        bounds=Bounds(may_lose=True, longest_wait=10),
    ),
    Cell(
        name="rolling-restart",
        title="Rolling restarts",
        meaning="A new worker is started and the oldest told to stop, again and again.",
        fault=processes.restart_in_turn,
        databases=BOTH,
        pause=(0.1, 0.5),
        bounds=Bounds(longest_wait=8),
    ),
    Cell(
        name="clock-steps",
        title="A clock is set",
        meaning=(
            "The wall clock of one worker is set two hours forward and back, 25 hours forward, and "
            "by 40 seconds."
        ),
        fault=processes.step_the_clock,
        has_clock=True,
        pause=(0.2, 1.0),
        bounds=Bounds(longest_wait=8),
    ),
    # The network
    Cell(
        name="connections-cut",
        title="Connections cut",
        meaning="A proxy closes all connections of workers three times within two seconds.",
        fault=network.cut,
        is_wired=True,
    ),
    Cell(
        name="connections-silent",
        title="Connections silent",
        meaning=(
            "Everything that workers and server send each other is dropped, and no connection is "
            "closed. A client finds out after 10 seconds, by the options of TCP."
        ),
        fault=network.silence,
        is_wired=True,
        pause=(6.0, 8.0),
        bounds=Bounds(may_lose=True, recovery=30),
    ),
    Cell(
        name="network-slow",
        title="Slow network",
        meaning="Each piece of data takes 0.2 to 0.4 seconds in each direction.",
        fault=network.slow_down,
        is_wired=True,
        load=0.2,
    ),
    Cell(
        name="messages-torn",
        title="Messages torn",
        meaning="Connections break off in the middle of a message.",
        fault=network.tear,
        is_wired=True,
    ),
    Cell(
        name="commits-unanswered",
        title="Replies to commits lost",
        meaning=(
            "A tenth of the commits is carried out, but the connection ends before the reply; some "
            "others never reach the server."
        ),
        fault=network.lose_replies,
        is_wired=True,
        is_all_wired=True,
    ),
    # Other users of the database
    Cell(
        name="rows-locked",
        title="Executing jobs locked",
        meaning=(
            "Another session locks the rows of executing jobs for six to ten seconds. All else has "
            "to go on."
        ),
        fault=rows.lock_executing_jobs,
        bounds=Bounds(longest_wait=5, longest_idle=5),
    ),
    Cell(
        name="queue-locked",
        title="A queue's row locked",
        meaning="Another session locks the row of a queue with a limit for four to seven seconds.",
        fault=rows.lock_a_queue,
        bounds=Bounds(longest_wait=3.5),
    ),
    Cell(
        name="table-locked",
        title="Tables locked",
        meaning=(
            "Another session locks each table in turn (`ACCESS EXCLUSIVE`), for two to five "
            "seconds."
        ),
        fault=rows.lock_a_table,
    ),
    Cell(
        name="statements-fail",
        title="Statements fail",
        meaning=(
            "A trigger makes writing statements fail: deadlocks, out of memory, cancelled "
            "statements, internal errors."
        ),
        fault=rows.let_statements_fail,
        prepare=rows.prepare_failing,
        databases=BOTH,
    ),
    Cell(
        name="refused-rows",
        title="Rows refused",
        meaning=(
            "A trigger refuses every change of twelve jobs, and a worker is killed meanwhile. The "
            "other jobs must not notice."
        ),
        fault=rows.refuse_rows,
        prepare=rows.prepare_refusing,
        databases=BOTH,
        bounds=Bounds(may_lose=True),
        settle=180,
    ),
    Cell(
        name="outside-writer",
        title="Another writer",
        meaning="Another process holds SQLite's write lock, up to 0.6 seconds, again and again.",
        fault=processes.write_from_outside,
        databases=(SQLITE,),
        pause=(0.2, 1.0),
    ),
    # The jobs themselves
    Cell(
        name="failure-storm",
        title="A storm of failures",
        meaning=(
            "Three thousand jobs that fail in each of three attempts are enqueued at once. Good "
            "jobs must not wait for them."
        ),
        fault=processes.place(orders.storm),
        databases=BOTH,
        pause=(8.0, 12.0),
        bounds=Bounds(longest_wait=5),
        settle=120,
    ),
    Cell(
        name="slow-among-quick",
        title="Slow jobs among quick ones",
        meaning=(
            "Ten jobs of seven seconds among six hundred quick ones. No quick job may wait beside "
            "an idle thread."
        ),
        fault=processes.place(orders.slow_among_quick),
        databases=BOTH,
        pause=(8.0, 10.0),
        bounds=Bounds(longest_wait=5),
    ),
    Cell(
        name="killer-jobs",
        title="Jobs that kill their process",
        meaning=(
            "Jobs end their process by SIGKILL and `os._exit` beside innocent ones. The killers "
            "fail, the innocent jobs succeed."
        ),
        fault=processes.place(orders.bystanders),
        databases=BOTH,
        pause=(14.0, 18.0),
        workers=2,
        processes=2,
        load=0.5,
        bounds=Bounds(may_lose=True),
        settle=120,
    ),
    Cell(
        name="bad-handlers",
        title="Handlers that misbehave",
        meaning="Handlers raise KeyboardInterrupt and worse, or leave a transaction open.",
        fault=processes.place(orders.mischief),
        databases=BOTH,
    ),
    Cell(
        name="huge-results",
        title="Huge results",
        meaning="A hundred jobs return three megabytes each, one returns 270 megabytes.",
        fault=processes.place(orders.bulky),
        pause=(12.0, 15.0),
        settle=120,
    ),
)


def by_name(name: str) -> Cell:
    """Return the cell of this name; raise `KeyError` where there is none."""
    return {cell.name: cell for cell in CELLS}[name]
