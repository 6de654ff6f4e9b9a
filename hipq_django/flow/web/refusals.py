"""Why a request is refused: its status, and what its answer says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import DataError, IntegrityError

from hipq_django.flow.exceptions import (
    AliasTakenError,
    GraphError,
    MessageTooLargeError,
    NameTakenError,
    NodeDeletedError,
)
from hipq_django.web.receiving import RefusedError

_STATUSES: tuple[tuple[type[Exception], int, str], ...] = (
    (NodeDeletedError, 404, ""),
    (AliasTakenError, 409, ""),
    (NameTakenError, 409, ""),
    (MessageTooLargeError, 413, ""),
    (DataError, 422, "the database cannot store what the body says."),
    (IntegrityError, 409, "somebody else changed the same at this moment; try again."),
)
"""All other errors are about what the body says: 422. The text stands in place of the error's."""


class RefusedCallError(RefusedError):
    """The request is refused with this status; `more` is said beside the error."""

    def __init__(self, status: int, reason: str, **more: Any) -> None:
        super().__init__(status, reason)
        self.more: Mapping[str, Any] = more


def refusal_of(error: Exception) -> RefusedCallError:
    """Return how a request is refused whose verb has raised."""
    if isinstance(error, RefusedCallError):
        return error
    if isinstance(error, RefusedError):  # of its body, as it was sent
        return RefusedCallError(422 if error.status == 400 else error.status, str(error))
    for kind, status, text in _STATUSES:
        if isinstance(error, kind):
            return RefusedCallError(status, text or str(error), **_more(error))
    return RefusedCallError(422, str(error), **_more(error))


def _more(error: Exception) -> dict[str, Any]:
    if isinstance(error, GraphError):
        said = ("path", "message", "hint")  # all of them are errors
        return {"problems": [{key: getattr(p, key) for key in said} for p in error.problems]}
    if isinstance(error, AliasTakenError | NameTakenError):
        return {"node": error.node.pk}
    return {}
