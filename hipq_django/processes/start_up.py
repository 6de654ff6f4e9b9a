"""What a process checks before it starts."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from django.db import DEFAULT_DB_ALIAS, Error

from hipq_django import events
from hipq_django.conf.instances import InstanceSettings, get_instance, serve
from hipq_django.database.answering import answers
from hipq_django.database.errors import in_one_line
from hipq_django.database.requirements import (
    check_driver,
    check_isolation,
    check_stored_times,
    connections_of_worker,
    pool_size,
)
from hipq_django.database.schema import missing_migrations
from hipq_django.exceptions import ConfigurationError
from hipq_django.processes.connections import look_after_own
from hipq_django.sharding.map import check_place

LEVELS = {0: logging.WARNING, 1: logging.INFO, 2: logging.DEBUG, 3: logging.DEBUG}


def set_up_logging(verbosity: int | None) -> None:
    """Log to stderr, unless the project gives a handler to this logger or to the root logger.

    If it has set a level, that counts unless `-v` was given: `verbosity` is None if it was not.
    """
    if events.LOGGER.handlers or logging.getLogger().handlers:
        return
    events.LOGGER.addHandler(events.LinesHandler())
    if verbosity is not None:
        events.LOGGER.setLevel(LEVELS[verbosity])
    elif events.LOGGER.level == logging.NOTSET:
        events.LOGGER.setLevel(LEVELS[1])


@contextmanager
def reached(config: InstanceSettings) -> Iterator[None]:
    """Raise `ConfigurationError` if the database fails: a start does not wait for it."""
    try:
        yield
    except Error as error:
        raise ConfigurationError(
            f"database {config.database!r} cannot be reached: {in_one_line(error)}"
        ) from error


def check_database(config: InstanceSettings) -> None:
    """Raise `ConfigurationError` if the database of an instance cannot be used as it is.

    The connection that it opens is one that notices when the server is gone.
    """
    look_after_own(config.database)
    with reached(config):
        check_driver(config.database)
        check_stored_times(config.database)
        missing = _missing(config)
        check_isolation(config.database)
        if not missing:
            check_place(config)
    if missing:
        raise ConfigurationError(missing)


def check_shards(config: InstanceSettings, shards: Sequence[str]) -> InstanceSettings:
    """Check the databases of shards; return the settings on the last that can be asked.

    Of several, one that is away does not keep a process from starting: it is waited for.
    """
    for each in map(config.on, shards):
        if len(shards) == 1 or answers(each.database):
            check_database(each)
            config = each
    return config


@contextmanager
def serving(instance: str, shard: str) -> Iterator[None]:
    """Let this process work on a shard, and say so in its log; '' without SHARDS."""
    if not shard:
        yield
        return
    serve(instance, shard)
    events.name_process(shard=shard)
    try:
        yield
    finally:
        events.name_process()
        serve(instance, get_instance(instance).shards[0])


def why_failed(config: InstanceSettings, error: Error) -> str:
    """Return why a command failed: tables that are not there, or the error of the database."""
    try:
        missing = _missing(config)
    except Error:
        missing = ""
    return missing or f"database: {in_one_line(error)}"


def _missing(config: InstanceSettings) -> str:
    """Return what the database lacks, and the way out; '' if it lacks nothing."""
    using = config.database
    flag = "" if using == DEFAULT_DB_ALIAS else f" --database {using}"
    if missing := missing_migrations(using):
        return f"database {using!r} lacks migration {missing[0]}: run manage.py migrate{flag}."
    return ""


def check_pool(config: InstanceSettings, threads: int) -> None:
    """Raise `ConfigurationError` if a connection pool is too small for a worker process.

    Its threads would wait for each other's connections, and fail.
    """
    size = pool_size(config.database)
    listens = config.notify and config.engine == "auto"
    needed = connections_of_worker(threads, notify=listens, is_sharded=config.is_sharded)
    if size is not None and size < needed:
        raise ConfigurationError(
            f"DATABASES[{config.database!r}]['OPTIONS']['pool'] has {size} connections, but a "
            f"worker process with --threads {threads} needs {needed}: set "
            f'"pool": {{"max_size": {needed}}}, or use fewer threads.'
        )
