"""Runs one cell in a process of its own, for `python -m chaos`; writes its result to its folder."""

from __future__ import annotations

import argparse
import json
import os
import random
import traceback
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import django
from django.core.management import call_command

from chaos.cells import by_name
from chaos.checks import check
from chaos.databases import NAME, POSTGRES, Postgres, SqliteFile
from chaos.disk import NoDiskError, small_disk
from chaos.figures import figures
from chaos.fleet import Fleet
from chaos.ledger import Ledger
from chaos.proxy import Network, Proxy
from chaos.run import CLOCK, LEDGER, LOG, RESULT, THREADS, Run

if TYPE_CHECKING:
    from chaos.databases import Database

EXAMPLES = 5
"""How many of the things that a check found wrong are told."""


def main() -> None:
    """Run a cell and write its result."""
    run = _options()
    try:
        with ExitStack() as stack:
            result = _result(run, stack)
    except NoDiskError as error:
        result = {"skipped": str(error)}
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    (run.folder / RESULT).write_text(json.dumps(result, indent=1))
    os._exit(0)  # a client that hangs in the database must not hold it back


def _result(run: Run, stack: ExitStack) -> dict[str, Any]:
    """Run the cell and return its figures, and what the checks found."""
    folder = Path(stack.enter_context(TemporaryDirectory(prefix="hipq-chaos-")))
    disk = stack.enter_context(small_disk(folder)) if run.cell.needs_disk else None
    database = _fresh_database(run, folder, stack)
    proxy = _proxy(run, database, stack)
    fleet = _fleet(run, _url(database, proxy if run.cell.is_wired else None))
    stack.callback(fleet.end)
    os.environ |= _environment(run, _url(database, proxy if run.cell.is_all_wired else None))
    django.setup()
    call_command("migrate", verbosity=0)

    from chaos.course import Course  # its models are there only now

    evidence = Course(run, database, fleet, proxy, disk).run()
    found = check(evidence)
    return {
        "version": database.version(),
        "figures": figures(evidence),
        "counts": {name: len(texts) for name, texts in found.items()},
        "examples": {
            name: list(dict.fromkeys(texts))[:EXAMPLES] for name, texts in found.items() if texts
        },
    }


def _fresh_database(run: Run, folder: Path, stack: ExitStack) -> Database:
    if run.database != POSTGRES:
        return SqliteFile(folder)
    server = Postgres(folder)
    stack.callback(server.stop, "immediate")
    return server


def _proxy(run: Run, database: Database, stack: ExitStack) -> Proxy | None:
    if not (run.cell.is_wired and isinstance(database, Postgres)):
        return None
    proxy = Proxy(database.socket, Network(random.Random(run.seed)))
    stack.callback(proxy.close)
    return proxy


def _url(database: Database, proxy: Proxy | None) -> str:
    return f"postgres://postgres@127.0.0.1:{proxy.port}/{NAME}" if proxy else database.url


def _environment(run: Run, url: str) -> dict[str, str]:
    return {
        "CHAOS_HEARTBEAT_SECONDS": str(run.beat),
        "CHAOS_LEDGER": str(run.folder / LEDGER),
        "DATABASE_URL": url,
        "DJANGO_SETTINGS_MODULE": "chaos.project.settings",
    }


def _fleet(run: Run, url: str) -> Fleet:
    return Fleet(
        environment={**os.environ, **_environment(run, url), "PYTHONFAULTHANDLER": "1"},
        log=run.folder / LOG,
        ledger=Ledger(run.folder / LEDGER),
        arguments=[f"--threads={THREADS}", f"--processes={run.cell.processes}"],
        clock=run.folder / CLOCK,
    )


def _options() -> Run:
    parser = argparse.ArgumentParser(prog="python -m chaos.cell")
    parser.add_argument("cell")
    parser.add_argument("database")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    options = parser.parse_args()
    return Run(
        by_name(options.cell), options.database, options.folder, options.seconds, options.seed
    )


if __name__ == "__main__":
    main()
