"""The pytest plugin that gives a test run its databases, and chooses which tests it has.

The databases are there before Django's settings are read. `DATABASE_URL` names one of the
developer's own. Without it, a run has databases that live as long as the run:
`HIPQ_TEST_DATABASE` is "sqlite" or "postgres"; the default is "postgres" if all files that are
named need it. The processes of pytest-xdist inherit the addresses, so a run has one server.

A run of named files has all their tests. Any other run is the commit suite, unless `--all` is
given: on SQLite all tests but the nightly ones, on PostgreSQL those of conformance.
"""

import os
import re
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import environ
import pytest

from tests.postgres import as_owner, temporary_server

VENDORS = ("sqlite", "postgres")

COMMIT_SUITE = {"sqlite": "not nightly", "postgres": "conformance and not nightly"}
"""Which tests are run on each kind of database, as `-m` takes it."""

RUN = "HIPQ_TEST_RUN"
"""The environment variable with the folder that the processes of a run share."""

ADMINISTRATOR = "HIPQ_TEST_ADMINISTRATOR"
"""The environment variable with the address for what a database's owner may not do."""

TEMPLATE = "hipq_template"
"""The database that those of the tests are copies of."""

NEEDS_POSTGRES = re.compile(r"^pytestmark = .*\bmark\.postgres\b", re.MULTILINE)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    if RUN in os.environ:  # this is one of the processes of a run
        return
    vendor = os.environ.get("HIPQ_TEST_DATABASE")
    url = os.environ.get("DATABASE_URL")
    _refuse_contradiction(vendor, url)
    # A run starts hundreds of processes, each of which would compile the whole package anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    run = ExitStack()
    early_config.add_cleanup(run.close)
    # A time limit ends the run with SIGTERM, which would leave the server running.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    os.environ[RUN] = run.enter_context(TemporaryDirectory(prefix="hipq-tests-"))
    run.callback(os.environ.pop, RUN)
    if url is None:
        files = _files(early_config.known_args_namespace.file_or_dir)
        url = _temporary_database(vendor or _needed_by(files), run)
    os.environ[ADMINISTRATOR] = url
    if url.startswith("postgres"):
        url = as_owner(url)
    os.environ["DATABASE_URL"] = url
    os.environ.setdefault("OTHER_DATABASE_URL", renamed(url, f"other_{database_name(url)}"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run all tests, not the commit suite")


def pytest_configure(config: pytest.Config) -> None:
    options = config.option
    if not (options.all or options.markexpr or _files(options.file_or_dir)):
        options.markexpr = COMMIT_SUITE[_vendor()]


def pytest_report_header(config: pytest.Config) -> str:
    return f"database: {_vendor()}, tests: {config.option.markexpr or 'all'}"


def _vendor() -> str:
    scheme = os.environ["DATABASE_URL"].partition(":")[0]
    return "sqlite" if scheme == "sqlite" else "postgres"


def _files(arguments: list[str]) -> list[Path]:
    """Return the files of tests that a command names, if it names nothing else."""
    paths = [Path(argument.partition("::")[0]) for argument in arguments]
    return paths if all(path.is_file() for path in paths) else []


def _needed_by(files: list[Path]) -> str:
    is_needed = files and all(NEEDS_POSTGRES.search(file.read_text()) for file in files)
    return "postgres" if is_needed else "sqlite"


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
    return f"sqlite:///{os.environ[RUN]}/hipq"
