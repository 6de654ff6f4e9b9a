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
        meaning="Nothing is done. An error that appears here is not caused by a fault.",
        databases=BOTH,
        bounds=Bounds(longest_wait=5, recovery=None),
    ),
    # The server
    Cell(
        name="server-restart",
        title="Server restarted",
        meaning="The database server is restarted normally (`pg_ctl stop -m fast`): it ends all "
        "sessions, writes its data and comes back within a second.",
        fault=server.restart,
    ),
    Cell(
        name="server-crash",
        title="Server crashes",
        meaning="The server stops at once, without writing anything (`pg_ctl stop -m immediate`), "
        "and recovers from its log when it is started again.",
        fault=server.crash,
    ),
    Cell(
        name="server-killed",
        title="Server killed",
        meaning="The server's main process is killed with SIGKILL, as the kernel does when memory "
        "runs out. Its child processes notice it and end; then the server is started again.",
        fault=server.kill,
    ),
    Cell(
        name="outage",
        title="Long outage",
        meaning="The server is away for longer than three heartbeats, so that no worker can show "
        "that it is alive. When it is back, no worker may be declared lost because of that.",
        fault=server.outage,
        pause=(3.0, 5.0),
    ),
    Cell(
        name="outage-reserved",
        title="Outage amid reservations",
        meaning="In the middle of six hundred quick jobs, forty of three seconds hold the threads "
        "of all workers, and quick ones are claimed ahead of these threads. At this moment the "
        "server stops at once, and stays away until after the slow jobs have ended. No job may "
        "fail that had not started.",
        fault=server.outage_of_reserved,
        pause=(4.0, 6.0),
    ),
    Cell(
        name="sessions-ended",
        title="Sessions ended",
        meaning="All sessions of workers, clients and bank are ended with "
        "`pg_terminate_backend`, every 0.3 seconds for three seconds, again and again.",
        fault=server.end_sessions,
    ),
    Cell(
        name="no-slots",
        title="No connections left",
        meaning="All sessions of the project are ended, and another client takes every connection "
        "that `max_connections` allows, for three to six seconds.",
        fault=server.use_up_slots,
    ),
    Cell(
        name="disk-full",
        title="Disk full",
        meaning="A file takes all the free space on the database's disk, a separate file system, "
        "for two to five seconds. If that ends the server, it is started again when there is room.",
        fault=rows.fill_the_disk,
        databases=BOTH,
        needs_disk=True,
    ),
    # Processes and machines
    Cell(
        name="workers-killed",
        title="Workers killed",
        meaning="Every one to three seconds a worker is killed with SIGKILL, and a new one "
        "started.",
        fault=processes.kill_a_worker,
        databases=BOTH,
        bounds=Bounds(may_lose=True),
    ),
    Cell(
        name="workers-stopped",
        title="Workers stopped for a moment",
        meaning="A worker is stopped with SIGSTOP for up to one heartbeat, and continued, as on a "
        "machine that swaps. No worker may be declared lost because of that.",
        fault=processes.suspend_shortly,
        databases=BOTH,
    ),
    Cell(
        name="workers-suspended",
        title="Workers suspended for long",
        meaning="A worker is stopped with SIGSTOP in the middle of nine hundred quick jobs and a "
        "few slow ones, for six heartbeats or more. After three heartbeats the others declare it "
        "lost and do its work. Then it is continued, in the middle of what it was doing.",
        fault=processes.suspend_for_long,
        databases=BOTH,
        pause=(2.0, 3.0),
        bounds=Bounds(may_lose=True),
    ),
    Cell(
        name="given-up",
        title="Living workers given up",
        meaning="The row of a living worker is marked as lost, as happens when a virtual machine "
        "was suspended and its own clocks stood still. The worker must notice it, start nothing in "
        "between, and go on as a new worker.",
        fault=processes.give_up_a_living_worker,
        databases=BOTH,
        bounds=Bounds(may_lose=True, longest_wait=10),
    ),
    Cell(
        name="rolling-restart",
        title="Rolling restarts",
        meaning="A new worker is started and the oldest one told to stop (SIGTERM), again and "
        "again, as in a deployment that never finishes.",
        fault=processes.restart_in_turn,
        databases=BOTH,
        pause=(0.1, 0.5),
        bounds=Bounds(longest_wait=8),
    ),
    Cell(
        name="clock-steps",
        title="A clock is set",
        meaning="The wall clock of one worker's machine is set again and again: two hours forward, "
        "two hours back, 25 hours forward, 40 seconds in either direction. The library "
        "time-machine changes what the worker's process sees (`time.time`, `datetime.now`, "
        "`CLOCK_REALTIME`); the clocks of the database and of the other workers are right.",
        fault=processes.step_the_clock,
        has_clock=True,
        pause=(0.2, 1.0),
        bounds=Bounds(longest_wait=8),
    ),
    # The network
    Cell(
        name="connections-cut",
        title="Connections cut",
        meaning="Workers reach the server through a proxy, which closes all their connections "
        "three times within two seconds, again and again.",
        fault=network.cut,
        is_wired=True,
    ),
    Cell(
        name="connections-silent",
        title="Connections silent",
        meaning="From one moment on, everything that workers and server send each other is "
        "dropped, and no connection is closed, as by a firewall that has forgotten them. Half of "
        "the time new connections get no reply for some seconds either.",
        fault=network.silence,
        is_wired=True,
        pause=(6.0, 8.0),
        bounds=Bounds(may_lose=True, recovery=30),
    ),
    Cell(
        name="network-slow",
        title="Slow network",
        meaning="Each piece of data between workers and server takes 0.2 to 0.4 seconds in each "
        "direction.",
        fault=network.slow_down,
        is_wired=True,
        load=0.2,
    ),
    Cell(
        name="messages-torn",
        title="Messages torn",
        meaning="Connections of workers break off in the middle of a message, either a request or "
        "a reply.",
        fault=network.tear,
        is_wired=True,
    ),
    Cell(
        name="commits-unanswered",
        title="Replies to commits lost",
        meaning="A tenth of the commits of workers, clients and bank is carried out by the server, "
        "but the connection ends before the reply; some of the others never reach the server. The "
        "sender cannot tell which.",
        fault=network.lose_replies,
        is_wired=True,
        is_all_wired=True,
    ),
    # Other users of the database
    Cell(
        name="rows-locked",
        title="Executing jobs locked",
        meaning="Another session locks the rows of executing jobs for six to ten seconds (`SELECT "
        "… FOR UPDATE`), as a view does that stays in its transaction. Everything else has to go "
        "on, in each of the workers.",
        fault=rows.lock_executing_jobs,
        bounds=Bounds(longest_wait=5, longest_idle=5),
    ),
    Cell(
        name="queue-locked",
        title="A queue's row locked",
        meaning="Another session locks the row of a queue with a limit for four to seven seconds, "
        "as somebody does who edits it. The other queues have to go on.",
        fault=rows.lock_a_queue,
        bounds=Bounds(longest_wait=3.5),
    ),
    Cell(
        name="table-locked",
        title="Tables locked",
        meaning="Another session locks a whole table for two to five seconds (`LOCK TABLE … IN "
        "ACCESS EXCLUSIVE MODE`), as a migration does: each of the tables in turn.",
        fault=rows.lock_a_table,
    ),
    Cell(
        name="statements-fail",
        title="Statements fail",
        meaning="A trigger makes a share of all writing statements fail: with deadlocks, "
        "serialization failures, out of memory, cancelled statements, internal errors.",
        fault=rows.let_statements_fail,
        prepare=rows.prepare_failing,
        databases=BOTH,
    ),
    Cell(
        name="refused-rows",
        title="Rows refused",
        meaning="A trigger of the project refuses every change of twelve jobs, most of them in the "
        "hands of workers: they can neither start nor end, time out, be answered or be taken over. "
        "Meanwhile a worker is killed. After some seconds the jobs may change again. The others "
        "must not notice any of it.",
        fault=rows.refuse_rows,
        prepare=rows.prepare_refusing,
        databases=BOTH,
        bounds=Bounds(may_lose=True),
        settle=180,
    ),
    Cell(
        name="outside-writer",
        title="Another writer",
        meaning="Another process holds SQLite's one write lock for 0.2 to 0.6 seconds, again and "
        "again.",
        fault=processes.write_from_outside,
        databases=(SQLITE,),
        pause=(0.2, 1.0),
    ),
    # The jobs themselves
    Cell(
        name="failure-storm",
        title="A storm of failures",
        meaning="Three thousand jobs that fail in each of their three attempts are enqueued at "
        "once in a queue of their own, again and again. Good jobs must not wait for them.",
        fault=processes.place(orders.storm),
        databases=BOTH,
        pause=(8.0, 12.0),
        bounds=Bounds(longest_wait=5),
        settle=120,
    ),
    Cell(
        name="slow-among-quick",
        title="Slow jobs among quick ones",
        meaning="Ten jobs of seven seconds are enqueued in one queue, in the middle of six hundred "
        "that return at once and time out after five seconds. No quick job may wait in a worker "
        "whose threads are all busy while another worker has idle ones.",
        fault=processes.place(orders.slow_among_quick),
        databases=BOTH,
        pause=(8.0, 10.0),
        bounds=Bounds(longest_wait=5),
    ),
    Cell(
        name="killer-jobs",
        title="Jobs that kill their process",
        meaning="Three jobs end the process that runs them, by SIGKILL and by `os._exit` with 0 "
        "and 1, while nine innocent jobs run beside them; each of two worker commands has two "
        "processes. The killers have to fail, the innocent jobs to succeed, and all processes to "
        "be replaced.",
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
        meaning="Handlers raise KeyboardInterrupt, SystemExit, an exception whose text raises "
        "SystemExit and a Snooze without a time, or leave a transaction open. None of this may end "
        "a thread, or make a later job lose what it writes.",
        fault=processes.place(orders.mischief),
        databases=BOTH,
    ),
    Cell(
        name="huge-results",
        title="Huge results",
        meaning="A hundred jobs return three megabytes each, more than PostgreSQL accepts in one "
        "statement, and one returns 270 megabytes, more than it accepts in one value.",
        fault=processes.place(orders.bulky),
        pause=(12.0, 15.0),
        settle=120,
    ),
)


def by_name(name: str) -> Cell:
    """Return the cell of this name; raise `KeyError` where there is none."""
    return {cell.name: cell for cell in CELLS}[name]
