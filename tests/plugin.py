"""The pytest plugin that gives a test run its databases, before Django's settings are read.

`DATABASE_URL` names a database of the developer's own. Without it, a run has databases that
live as long as the run: `HIPQ_TEST_DATABASE` is "sqlite" (the default) or "postgres". The
processes of pytest-xdist inherit the addresses, so a run has one server.
"""

import os
import signal
from contextlib import ExitStack
from tempfile import TemporaryDirectory

import environ
import pytest

from tests.postgres import temporary_server

VENDORS = ("sqlite", "postgres")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    vendor = os.environ.get("HIPQ_TEST_DATABASE")
    url = os.environ.get("DATABASE_URL")
    _refuse_contradiction(vendor, url)
    # A run starts hundreds of processes, each of which would compile the whole package anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if url is None:
        run = ExitStack()
        early_config.add_cleanup(run.close)
        # A time limit ends the run with SIGTERM, which would leave the server running.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        url = os.environ["DATABASE_URL"] = _temporary_database(vendor or "sqlite", run)
    os.environ.setdefault("OTHER_DATABASE_URL", renamed(url, f"other_{database_name(url)}"))


def pytest_report_header() -> str:
    return f"database: {os.environ['DATABASE_URL'].partition(':')[0]}"


def database_name(url: str) -> str:
    """Return the last part of a database's address: its name, or its file's name."""
    return url.partition("?")[0].rpartition("/")[2]


def renamed(url: str, name: str) -> str:
    """Return the address of the database called `name` beside the one that `url` names."""
    address, mark, options = url.partition("?")
    return f"{address.rpartition('/')[0]}/{name}{mark}{options}"


def _refuse_contradiction(vendor: str | None, url: str | None) -> None:
    if vendor is None:
        return
    if vendor not in VENDORS:
        raise pytest.UsageError(f"HIPQ_TEST_DATABASE={vendor}: it is one of {', '.join(VENDORS)}.")
    if url is not None and vendor not in environ.Env.db_url_config(url)["ENGINE"]:
        raise pytest.UsageError(
            f"HIPQ_TEST_DATABASE={vendor}, but DATABASE_URL names another kind of database: "
            "unset one of the two."
        )


def _temporary_database(vendor: str, run: ExitStack) -> str:
    if vendor == "postgres":
        return run.enter_context(temporary_server()).url("hipq")
    directory = run.enter_context(TemporaryDirectory(prefix="hipq-sqlite-"))
    return f"sqlite:///{directory}/hipq"
