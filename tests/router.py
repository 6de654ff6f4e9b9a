"""A router that sends reads to a replica, as in Django's documentation; it does not answer.

hipq_django names the database alias of its instance in each query. What it reads without doing so
fails here, because the replica's engine does nothing but raise. Tests themselves, and the factories
they use, read where they write. `HIPQ_TEST_ROUTER=replica` runs any test under it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django.db.models import Model

REPLICA = {"ENGINE": "django.db.backends.dummy"}


class ReplicaRouter:
    """Reads go to the replica, writes to the primary, whatever the row was read from."""

    def db_for_read(self, model: type[Model], **hints: Any) -> str | None:
        """Return the replica for our rows, unless a test asks."""
        if model._meta.app_label != "hipq":
            return None
        return "replica" if _is_ours() else _of(hints)

    def db_for_write(self, model: type[Model], **hints: Any) -> str | None:
        """Return the primary for our rows."""
        if model._meta.app_label != "hipq":
            return None
        return "default" if _is_ours() else _of(hints)

    def allow_relation(self, *rows: Model, **_: Any) -> bool | None:
        """All rows of an instance are in one database."""
        return True


class PrimaryRouter(ReplicaRouter):
    """Knows its own databases alone, as in Django's documentation, and none of an instance."""

    def db_for_write(self, model: type[Model], **hints: Any) -> str | None:
        """Return the primary for our rows, those of flows too."""
        if model._meta.app_label not in ("hipq", "hipq_flow"):
            return None
        return "default" if _is_ours() else _of(hints)

    def allow_relation(self, *rows: Model, **_: Any) -> bool | None:
        """Allow it between its own databases; of others it says nothing."""
        return True if {row._state.db for row in rows} <= {"default", "replica"} else None


def _of(hints: dict[str, Any]) -> str | None:
    state = getattr(hints.get("instance"), "_state", None)
    return state.db if state else None


def _is_ours() -> bool:
    """Whether hipq_django asks: its own code, or a page of the admin that is requested."""
    for module in _callers():
        if module.startswith(("hipq_django.", "django.core.handlers.")):
            return True
        if not module.startswith("django."):
            return False
    return False


def _callers() -> Iterator[str]:
    frame = sys._getframe(3)
    while frame:
        yield str(frame.f_globals.get("__name__", ""))
        frame = frame.f_back  # type: ignore[assignment]  # None at the end
