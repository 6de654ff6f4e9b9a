"""The few statements that run for every batch of jobs, one class for each kind of database.

`base` defines what they do, with Django's ORM, for every database; the others do the same in
statements of one round trip each. One suite of tests runs all of them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from django.core.signals import setting_changed
from django.dispatch import receiver

from hipq_django.database.kinds import engine_kind
from hipq_django.engines.base import Engine
from hipq_django.engines.postgres import PostgresEngine
from hipq_django.engines.sqlite import SqliteEngine

_ENGINES: dict[str, type[Engine]] = {"postgresql": PostgresEngine, "sqlite": SqliteEngine}


@cache
def engine_for(using: str) -> Engine:
    """Return the statements for this database alias."""
    return _ENGINES.get(engine_kind(using), Engine)(using)


@receiver(setting_changed)
def _choose_again(*, setting: str, **_: Any) -> None:
    if setting == "HIPQ":
        engine_for.cache_clear()
