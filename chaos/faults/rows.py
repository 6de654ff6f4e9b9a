"""Faults that other users of the database make: locks, errors, a full disk."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

import psycopg

from chaos.databases import Postgres, session
from chaos.faults.processes import kill_a_worker

if TYPE_CHECKING:
    from chaos.stage import Stage

EXECUTING = """
SELECT id FROM hipq_job WHERE state = 'running' AND worker_id IS NOT NULL
ORDER BY random() LIMIT 6 FOR UPDATE SKIP LOCKED
"""
LIMITED_QUEUE = "SELECT id FROM hipq_queue WHERE name = 'limited' FOR NO KEY UPDATE"
TABLES = """
SELECT relname FROM pg_class WHERE relkind = 'r' AND relname ~ '^hipq_' ORDER BY relname
"""
TABLE = "LOCK TABLE {} IN ACCESS EXCLUSIVE MODE"

SWITCH = "CREATE TABLE chaos_switch (share float NOT NULL)"
OFF = "INSERT INTO chaos_switch VALUES (0)"
SET = "UPDATE chaos_switch SET share = {share}"
# Errors as servers have them: of the transaction, of the resources, of the operator, of a bug.
FAILING_FUNCTION = """
CREATE FUNCTION chaos_fail() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF random() < (SELECT share FROM chaos_switch) * TG_ARGV[0]::float THEN
        RAISE EXCEPTION 'made by the crash tests' USING ERRCODE =
            (ARRAY['40001', '40P01', '53200', '57014', 'XX000'])[1 + floor(random() * 5)];
    END IF;
    RETURN NULL;
END $$
"""
FAILING_TRIGGER = """
CREATE TRIGGER chaos_fail AFTER INSERT OR UPDATE ON {table}
FOR EACH STATEMENT EXECUTE FUNCTION chaos_fail({part})
"""
FAILING_ROW = """
CREATE TRIGGER chaos_fail_{table}_{event} AFTER {event} ON {table}
WHEN abs(random() % 1000) < 1000 * {part} * (SELECT share FROM chaos_switch)
BEGIN SELECT json('made by the crash tests'); END
"""
"""To RAISE would be a constraint, which refuses a row for good; this is an error of the moment."""
# A project's own trigger, as one that guards what must not change.
REFUSED = "CREATE TABLE chaos_refused (job bigint PRIMARY KEY)"
REFUSING_FUNCTION = """
CREATE FUNCTION chaos_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM chaos_refused WHERE job = OLD.id) THEN
        RAISE EXCEPTION 'refused by the crash tests';
    END IF;
    RETURN NEW;
END $$
"""
REFUSING_TRIGGER = """
CREATE TRIGGER chaos_refuse BEFORE UPDATE ON hipq_job
FOR EACH ROW EXECUTE FUNCTION chaos_refuse()
"""
REFUSING_ROW = """
CREATE TRIGGER chaos_refuse BEFORE UPDATE ON hipq_job
WHEN EXISTS (SELECT 1 FROM chaos_refused WHERE job = OLD.id)
BEGIN SELECT RAISE(ABORT, 'refused by the crash tests'); END
"""
REFUSE = """
INSERT INTO chaos_refused
SELECT id FROM hipq_job WHERE state <> 'final' ORDER BY worker_id IS NULL, random() LIMIT 12
"""
REFUSE_NOTHING = "DELETE FROM chaos_refused"

PART = dict.fromkeys(("hipq_job", "hipq_attempt", "hipq_answer", "hipq_queue"), 1.0)
PART["hipq_worker"] = 0.3
"""How much of the share is for each table; a worker with three failed beats is rightly lost."""


def lock_executing_jobs(stage: Stage) -> None:
    """Lock rows of executing jobs, as a view does that stays in its transaction."""
    _hold(stage, EXECUTING, stage.chance.uniform(6, 10))


def lock_a_queue(stage: Stage) -> None:
    """Lock the row of the queue with a limit, as an editor does that stays in a transaction."""
    _hold(stage, LIMITED_QUEUE, stage.chance.uniform(4, 7))


def lock_a_table(stage: Stage) -> None:
    """Lock a whole table, as a migration does: each in turn."""
    with session(stage.database) as opened:
        tables = [name for (name,) in opened.execute(TABLES).fetchall()]
    table = tables[next(stage.turns) % len(tables)]
    _hold(stage, TABLE.format(table), stage.chance.uniform(2, 5))


def _hold(stage: Stage, statement: str, seconds: float) -> None:
    with session(stage.database) as opened:
        opened.execute("BEGIN")
        opened.execute(statement)
        time.sleep(seconds)
        opened.execute("ROLLBACK")


def prepare_failing(stage: Stage) -> None:
    """Make triggers that raise for a share of statements, which is none for now."""
    stage.run(SWITCH, OFF)
    if isinstance(stage.database, Postgres):
        stage.run(FAILING_FUNCTION)
    for table, part in PART.items():
        if isinstance(stage.database, Postgres):
            stage.run(FAILING_TRIGGER.format(table=table, part=part))
        else:
            for event in ("INSERT", "UPDATE"):
                stage.run(FAILING_ROW.format(table=table, part=part, event=event))


def let_statements_fail(stage: Stage) -> None:
    """Let some of the statements that write fail, for some seconds."""
    share = 0.15 if isinstance(stage.database, Postgres) else 0.02
    stage.run(SET.format(share=share))
    time.sleep(stage.chance.uniform(3, 6))
    stage.run(SET.format(share=0))


def prepare_refusing(stage: Stage) -> None:
    """Make a trigger that refuses each change of some jobs, which are none for now."""
    stage.run(REFUSED)
    if isinstance(stage.database, Postgres):
        stage.run(REFUSING_FUNCTION, REFUSING_TRIGGER)
    else:
        stage.run(REFUSING_ROW)


def refuse_rows(stage: Stage) -> None:
    """Let no change of some jobs be written, and kill a worker meanwhile, until it is lost."""
    stage.run(REFUSE)
    kill_a_worker(stage)
    time.sleep(stage.silence + stage.chance.uniform(1, 3))
    stage.run(REFUSE_NOTHING)


def fill_the_disk(stage: Stage) -> None:
    """Leave no room on the database's disk, then give it back; start the server if it ended."""
    stage.disk.fill()
    time.sleep(stage.chance.uniform(2, 5))
    stage.disk.free()
    if isinstance(stage.database, Postgres) and not _comes_back(stage.database):
        with suppress(psycopg.Error):
            stage.database.stop("immediate")
        stage.database.start_again()


def _comes_back(server: Postgres, seconds: float = 10) -> bool:
    """Whether the server, which restarts itself where it can, is there within a while."""
    until = time.monotonic() + seconds
    while not server.is_running():
        if time.monotonic() > until:
            return False
        time.sleep(0.2)
    return True
