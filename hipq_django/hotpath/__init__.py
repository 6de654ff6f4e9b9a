"""The few statements that run for every batch of jobs.

`orm` says what they do, for every database; `sql` says the same in statements of one round trip
each for PostgreSQL and SQLite. One suite of tests runs both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import connections

from hipq_django.hotpath.dialects import DIALECTS
from hipq_django.hotpath.orm import OrmPath
from hipq_django.hotpath.sql import SqlPath

if TYPE_CHECKING:
    from hipq_django.hotpath.base import HotPath


def hot_path(using: str) -> HotPath:
    """Return the statements for this database alias."""
    dialect = DIALECTS.get(connections[using].vendor)
    return SqlPath(using, dialect) if dialect else OrmPath(using)
