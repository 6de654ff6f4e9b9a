"""What a process makes sure of before it starts."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from django.db import DEFAULT_DB_ALIAS, Error

from hipq_django.database import check_isolation, in_one_line
from hipq_django.exceptions import ConfigurationError
from hipq_django.schema import missing_migrations

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hipq_django.conf import InstanceSettings


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
