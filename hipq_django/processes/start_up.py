"""What a process makes sure of before it starts."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, Error

from hipq_django.database.errors import in_one_line
from hipq_django.database.requirements import check_driver, check_isolation
from hipq_django.database.schema import missing_migrations
from hipq_django.exceptions import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hipq_django.conf.instances import InstanceSettings


@contextmanager
def reached(config: InstanceSettings) -> Iterator[None]:
    """Raise `ConfigurationError` where the database fails: a start does not wait for it."""
    try:
        yield
    except Error as error:
        raise ConfigurationError(
            f"database {config.database!r} cannot be reached: {in_one_line(error)}"
        ) from error


def check_database(config: InstanceSettings) -> None:
    """Raise `ConfigurationError` where the database of an instance cannot be used as it is."""
    with reached(config):
        check_driver(config.database)
        missing = missing_migrations(config.database)
        check_isolation(config.database)
    if missing:
        raise ConfigurationError(_lacking(config, missing[0]))


def why_failed(config: InstanceSettings, error: Error) -> str:
    """Return why a command failed: a missing migration, or what the database says."""
    try:
        missing = missing_migrations(config.database)
    except Error:
        missing = []
    return _lacking(config, missing[0]) if missing else f"database: {in_one_line(error)}"


def _lacking(config: InstanceSettings, migration: str) -> str:
    flag = "" if config.database == DEFAULT_DB_ALIAS else f" --database {config.database}"
    return (
        f"database {config.database!r} lacks migration hipq.{migration}: "
        f"run manage.py migrate{flag}."
    )


def check_pool(config: InstanceSettings, threads: int) -> None:
    """Raise `ConfigurationError` where a connection pool is too small for a worker process.

    Its threads would wait for each other's connections, and fail.
    """
    pool = settings.DATABASES[config.database].get("OPTIONS", {}).get("pool")
    if not pool:
        return
    size, needed = _size(pool), connections_needed(config, threads)
    if size < needed:
        raise ConfigurationError(
            f"DATABASES[{config.database!r}]['OPTIONS']['pool'] has {size} connections, but a "
            f"worker process with --threads {threads} needs {needed}: set "
            f'"pool": {{"max_size": {needed}}}, or take fewer threads.'
        )


def connections_needed(config: InstanceSettings, threads: int) -> int:
    """Return how many connections a worker process may use at the same moment.

    One for each thread; the scheduler, the writer of results and the heartbeat; and where NOTIFY
    wakes it, one to listen and one to send the message that proves that it hears.
    """
    return threads + 3 + (2 if config.notify else 0)


def _size(pool: Any) -> int:
    """Return the most connections of a pool, by psycopg's own defaults where they are not given."""
    options = pool if isinstance(pool, dict) else {}
    return int(options.get("max_size") or options.get("min_size", 4))
