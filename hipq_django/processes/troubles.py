"""What fails or hangs in a process at present: its next heartbeats write it into its row."""

from __future__ import annotations

from typing import Any

from hipq_django.database import clock
from hipq_django.database.isolation import RowsLeftAloneError
from hipq_django.domain.serialization import error_of, storable_text
from hipq_django.job_types.registry import has_sensitive


class Troubles:
    """Since when, and why, by what is in trouble, such as a duty. Any thread may call any method.

    The reason is for operators: it quotes nothing where job types have sensitive fields, because
    nobody knows which values an error is about.
    """

    def __init__(self, instance: str, using: str) -> None:
        self._instance = instance
        self._using = using
        self._found: dict[str, dict[str, Any]] = {}

    @property
    def shown(self) -> dict[str, dict[str, Any]]:
        """What the row says."""
        return dict(self._found)

    def note(self, name: str, reason: str, **more: Any) -> None:
        """Note that something is in trouble; it has been so since the first of these notes."""
        known = self._found.get(name)
        since = known["since"] if known else clock.now(self._using).isoformat()
        self._found[name] = {"since": since, "reason": storable_text(reason), **more}

    def end(self, name: str) -> None:
        """Note that it is well again, if it was not."""
        self._found.pop(name, None)

    def tell(self, name: str, error: Exception | None) -> None:
        """Note how something ended this time."""
        if error is None:
            self.end(name)
        else:
            self.note(name, self._reason(error))

    def _reason(self, error: Exception) -> str:
        if isinstance(error, RowsLeftAloneError):
            return f"{error}, see the worker's log"
        if has_sensitive(self._instance):
            return f"{type(error).__name__}, see the worker's log"
        return error_of(error).partition("\n")[0]  # the rest may quote a row
