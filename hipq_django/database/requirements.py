"""What hipq_django needs of a database connection."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.conf import settings
from django.db import connections, router

from hipq_django.exceptions import ConfigurationError

SQLITE_OPTIONS = {
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL",
    "transaction_mode": "IMMEDIATE",
    "timeout": 20,
}
"""What SQLite needs where several processes use it; libpq rejects these options."""


def places_of_models(using: str) -> list[str]:
    """Return the databases that the project's models are written to, if this is none of them."""
    own = (m for m in apps.get_models() if not m.__module__.startswith(("django.", "hipq_django.")))
    places = {router.db_for_write(model) for model in own}
    return [] if using in places else sorted(places)


def has_psycopg(using: str) -> bool:
    """Return whether a PostgreSQL database is reached through psycopg 3, as it has to be."""
    driver: Any = connections[using]
    return bool(driver.Database.__name__ == "psycopg")


def check_driver(using: str) -> None:
    """Raise `ConfigurationError` if PostgreSQL is reached through another driver."""
    if connections[using].vendor == "postgresql" and not has_psycopg(using):
        raise ConfigurationError(
            f"database {using!r} is reached through psycopg2, which hipq_django does not support: "
            "install psycopg 3, which Django prefers."
        )


def check_isolation(using: str) -> None:
    """Raise `ConfigurationError` if the isolation level would make limits inexact."""
    if connections[using].vendor != "postgresql":
        return
    with connections[using].cursor() as cursor:
        cursor.execute("SHOW transaction_isolation")
        level = str(cursor.fetchone()[0])
    if level != "read committed":
        raise ConfigurationError(
            f"database {using!r} runs transactions at {level!r}: exact limits need 'read "
            "committed', in which each statement sees what was committed before it; remove "
            "'isolation_level' from its OPTIONS, or default_transaction_isolation from the "
            "database or its role."
        )


def local_times(using: str) -> str:
    """Return what is wrong with a database that stores local times; '' if it does not.

    SQLite has no times with zones. Where the clock is set back, an hour of local times comes twice:
    jobs would start in the wrong one, and time out early.
    """
    driver = connections[using]
    if driver.features.supports_timezones or driver.timezone_name == "UTC":
        return ""
    return (
        f"DATABASES[{using!r}]['TIME_ZONE'] is {driver.timezone_name!r}, so times are stored as "
        "local times, of which an hour comes twice where summer time ends."
    )


def check_stored_times(using: str) -> None:
    """Raise `ConfigurationError` if the database stores local times."""
    if problem := local_times(using):
        raise ConfigurationError(
            f"{problem} Remove 'TIME_ZONE', or give hipq an alias of its own without it."
        )


def pool_size(using: str) -> int | None:
    """Return how many connections the pool of a database has, None where it has no pool."""
    pool = settings.DATABASES[using].get("OPTIONS", {}).get("pool")
    if not pool:
        return None
    options = pool if isinstance(pool, dict) else {}
    return int(options.get("max_size") or options.get("min_size", 4))  # psycopg's own defaults


def connections_of_worker(threads: int, *, notify: bool, is_sharded: bool) -> int:
    """Return how many connections a worker process uses at the same time."""
    # One for each thread; the scheduler, the writer of results and the heartbeat; and where NOTIFY
    # wakes it, one to listen and one to send the message that proves that it hears; in a shard one
    # of the thread that gets shares of others.
    return threads + 3 + (2 if notify else 0) + is_sharded
