"""What an error of the database means: an outage, a refusal, or another transaction's lock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.db import (
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    OperationalError,
    connections,
)

from hipq_django.exceptions import ConfigurationError

_LOCK_NOT_AVAILABLE = "55P03"
_CANCELED = "57014"


class LockedRowError(Exception):
    """Another transaction has locked a row, and nobody waits for it."""


class SkippedRowError(IntegrityError):
    """The database has passed over a row that it was to change, and said nothing: a refusal."""

    def __init__(self) -> None:
        super().__init__("the row was not changed: a trigger of the project may skip it")


class DeclaredLostError(Exception):
    """The worker that wanted jobs was declared lost: its row is no longer live."""


def is_locked_out(error: BaseException) -> bool:
    """Return whether a statement was ended because it waited for another transaction's lock.

    This is no outage: everything else may go on.
    """
    if isinstance(error, LockedRowError):
        return True
    cause = error.__cause__
    state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    return isinstance(error, OperationalError) and state == _LOCK_NOT_AVAILABLE


def is_cancelled(error: BaseException) -> bool:
    """Return whether the server cancelled the statement: by `statement_timeout`, or for somebody.

    The server may be slow for a moment, or the statement has too much to do. It counts as an
    outage where it is not told apart.
    """
    return getattr(error.__cause__, "sqlstate", None) == _CANCELED


@contextmanager
def telling_locks() -> Iterator[None]:
    """Raise `LockedRowError` where a statement of the block waited in vain for others' locks."""
    try:
        yield
    except OperationalError as error:
        if is_locked_out(error):
            raise LockedRowError(in_one_line(error)) from error
        raise


@contextmanager
def project_code(using: str, failed: Callable[[BaseException], None]) -> Iterator[None]:
    """Call `failed(error)` if code of the project raises in the block; it may call sys.exit().

    Raise it where this thread's connection is lost, so that no code is at fault.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if is_cut_off(error, using):
            raise
        failed(error)


def is_duplicate(error: IntegrityError) -> bool:
    """Return whether another row has a value that only one may have."""
    state = getattr(error.__cause__, "sqlstate", None)
    return state == "23505" or "UNIQUE" in getattr(error.__cause__, "sqlite_errorname", "")


_REFUSALS = ("20", "21", "22", "23", "27", "2F", "38", "39", "42501", "44", "54", "55000", "P0")
"""How the SQLSTATE of refused values and batches begins: data, constraints, views, limits.

And row security, and what a trigger of the project raises, in whatever language. The other errors
of class 42, such as a missing function, are the fault of the statement: they must fail no job. So
is 0A000: PostgreSQL has it for a prepared statement whose table was changed.
"""
_AMBIGUOUS = ("53200", "53400", "XX000")
"""Out of memory, over a configured limit, and PostgreSQL's word for an allocation too large.

Either the value is too large, or the server is short of memory for a moment.
"""


_UNUSABLE = ("25P03", "25P04", "25006")
"""The server has ended the session, because its transaction was idle, or open, for too long.

Or it only reads now: it is a standby, about to move, or its disk is full. For the driver these are
internal errors.
"""


def is_outage(error: BaseException) -> bool:
    """Return whether the database, or the network to it, is at fault, and not the statement."""
    at_fault = isinstance(error, OperationalError | InterfaceError)
    at_fault = at_fault or getattr(error.__cause__, "sqlstate", None) in _UNUSABLE
    return at_fault and not (is_refusal(error) or is_locked_out(error))


def is_cut_off(error: BaseException, using: str) -> bool:
    """Return whether this thread's connection is lost, so that no statement is at fault.

    This is asked of what the project's code raises. On a sound connection its own statements may
    be too slow, wait for each other or, on SQLite, name a table that is not there: no outages.
    """
    connection = connections[using]
    return is_outage(error) and connection.errors_occurred and not connection.is_usable()


def is_refusal(error: BaseException) -> bool:
    """Return whether the written values are at fault, and not the database or the network to it.

    An error before the database is reached, such as a value that cannot be encoded, is no outage.
    """
    if not isinstance(error, Error):
        return True
    state = getattr(error.__cause__, "sqlstate", None)
    if state is None:
        return isinstance(error, DataError | IntegrityError)
    is_own_code = type(error) is DatabaseError  # one that only the project's trigger knows
    return str(state).startswith(_REFUSALS) or state in _AMBIGUOUS or is_own_code


def may_pass(error: BaseException) -> bool:
    """Return whether a refused statement may succeed if it is tried again."""
    return getattr(error.__cause__, "sqlstate", None) in _AMBIGUOUS


def in_one_line(error: BaseException, mask: Callable[[str], str] = str) -> str:
    """Return a driver's message of an error in one line, without hints and repetitions.

    It is masked whole: of a value of several lines the first alone would not be found.
    """
    lines = mask(str(error).strip()).splitlines()
    return lines[0] if lines else type(error).__name__


_hides: list[Callable[[], bool]] = []


def quote_nothing_if(hides: Callable[[], bool]) -> None:
    """Let the log quote nothing of a refusal while `hides()`: it may be about any row."""
    _hides[:] = [hides]


def said_of(error: Exception) -> str:
    """Return what the log quotes of an error about rows that nobody knows: of a refusal, its kind.

    And what the database says, if no row has anything to hide.
    """
    line = in_one_line(error)  # behind it PostgreSQL may quote values of the row
    if isinstance(error, ConfigurationError) or not is_refusal(error):
        return line
    name = type(error).__name__
    return name if any(hides() for hides in _hides) else f"{name}: {line}"
