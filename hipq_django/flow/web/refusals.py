"""Why a request is refused: its status, and what its answer says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import DataError, IntegrityError

from hipq_django.exceptions import HipqError
from hipq_django.flow.exceptions import (
    AliasTakenError,
    GraphError,
    MessageTooLargeError,
    NameTakenError,
    NodeDeletedError,
)
from hipq_django.web.receiving import RefusedError

_STATUSES: dict[type[Exception], int] = {
    NodeDeletedError: 404,
    AliasTakenError: 409,
    NameTakenError: 409,
    IntegrityError: 409,
    MessageTooLargeError: 413,
}
"""All other errors are about what the body says: 422."""

_NOT_STORABLE: dict[type[Exception], str] = {
    DataError: "the database cannot store what the body says.",
    IntegrityError: "somebody else changed the same at this moment; try again.",
}


class RefusedCallError(RefusedError):
    """The request is refused with this status; `more` is said beside the error."""

    def __init__(self, status: int, reason: str, **more: Any) -> None:
        super().__init__(status, reason)
        self.more: Mapping[str, Any] = more


def refusal_of(error: HipqError | DataError | IntegrityError) -> RefusedCallError:
    """Return how a request is refused whose verb has raised."""
    kinds = type(error).__mro__
    status = next((_STATUSES[kind] for kind in kinds if kind in _STATUSES), 422)
    reason = next((_NOT_STORABLE[kind] for kind in kinds if kind in _NOT_STORABLE), str(error))
    return RefusedCallError(status, reason, **_more(error))


def _more(error: Exception) -> dict[str, Any]:
    if isinstance(error, GraphError):
        said = ("path", "message", "hint")  # all of them are errors
        return {"problems": [{key: getattr(p, key) for key in said} for p in error.problems]}
    if isinstance(error, AliasTakenError | NameTakenError):
        return {"node": error.node.pk}
    return {}
