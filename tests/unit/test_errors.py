"""What each error of the drivers counts as: it decides who is to blame for a failed statement."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from django.db.utils import DatabaseErrorWrapper, Error

from hipq_django.database import errors
from hipq_django.exceptions import ConfigurationError

REFUSED = {"refusal"}
MAY_PASS = {"refusal", "may pass"}
LOCKED_OUT = {"locked out"}
CANCELLED = {"outage", "cancelled"}
OUTAGE = {"outage"}
STATEMENT: set[str] = set()
"""The statement is at fault: no row, no server."""

KINDS_OF_STATES = {
    "20000": REFUSED,  # CASE without ELSE
    "21000": REFUSED,  # a row twice
    "22001": REFUSED,  # too long
    "22P02": REFUSED,  # no such number
    "23505": REFUSED,  # unique
    "23514": REFUSED,  # check
    "27000": REFUSED,  # a trigger has changed the row first
    "2F002": REFUSED,  # by a function that must not write
    "38000": REFUSED,  # by code in another language
    "39001": REFUSED,  # the same
    "42501": REFUSED,  # row security
    "44000": REFUSED,  # WITH CHECK OPTION of a view
    "54000": REFUSED,  # too large for an index
    "55000": REFUSED,  # a view that cannot be written
    "P0001": REFUSED,  # RAISE EXCEPTION
    "MY001": REFUSED,  # a code of the project's own
    "53200": MAY_PASS,  # out of memory
    "53400": MAY_PASS,  # over a configured limit
    "XX000": MAY_PASS,  # invalid memory alloc request size
    "55P03": LOCKED_OUT,
    "57014": CANCELLED,
    "08006": OUTAGE,  # the connection
    "25006": OUTAGE,  # it only reads now
    "25P03": OUTAGE,  # idle in transaction
    "25P04": OUTAGE,  # a transaction for too long
    "40001": OUTAGE,  # serialization
    "40P01": OUTAGE,  # deadlock
    "53100": OUTAGE,  # disk full
    "53300": OUTAGE,  # too many connections
    "57P01": OUTAGE,  # shut down
    "57P03": OUTAGE,  # starting
    "0A000": STATEMENT,  # a prepared one, whose table was changed
    "25P02": STATEMENT,  # after another error
    "26000": STATEMENT,  # a prepared one that is not there
    "42601": STATEMENT,  # syntax
    "42883": STATEMENT,  # no such function
    "42P01": STATEMENT,  # no such table
}


def wrapped(driver: Any, error: BaseException) -> BaseException:
    """Return what Django makes of an error of a driver."""
    try:
        with DatabaseErrorWrapper(SimpleNamespace(Database=driver, errors_occurred=False)):
            raise error
    except (Error, Exception) as caught:
        return caught


def of_state(state: str) -> BaseException:
    """Return the error of a statement that PostgreSQL has answered with a SQLSTATE."""
    error = psycopg.errors._class_for_state(state)("too much")
    error.sqlstate = state  # the driver reads it from the answer
    return wrapped(psycopg, error)


def kinds(error: BaseException) -> set[str]:
    """Return what an error counts as."""
    asked = {
        "cancelled": errors.is_cancelled,
        "locked out": errors.is_locked_out,
        "may pass": errors.may_pass,
        "outage": errors.is_outage,
        "refusal": errors.is_refusal,
    }
    return {name for name, is_one in asked.items() if is_one(error)}


def test_each_sqlstate_is_of_its_kind() -> None:
    assert {state: kinds(of_state(state)) for state in KINDS_OF_STATES} == KINDS_OF_STATES


def test_each_error_that_psycopg_raises_itself_is_of_its_kind() -> None:
    found = {
        error.__name__: kinds(wrapped(psycopg, error("no")))
        for error in (
            psycopg.DataError,  # text with a NUL
            psycopg.InterfaceError,  # the connection is closed
            psycopg.OperationalError,  # server closed the connection unexpectedly
            psycopg.ProgrammingError,  # a type that it cannot adapt
        )
    }
    assert found == {
        "DataError": REFUSED,
        "InterfaceError": OUTAGE,
        "OperationalError": OUTAGE,
        "ProgrammingError": STATEMENT,
    }


TABLE = "CREATE TABLE t (x UNIQUE CHECK (x <> 'bad')); INSERT INTO t VALUES ('a')"
TRIGGERS = "CREATE TRIGGER {name} BEFORE INSERT ON t WHEN NEW.x = '{name}' BEGIN {how}; END"


def test_each_error_of_sqlite_is_of_its_kind(tmp_path: Path) -> None:
    """It has no codes: a lock and a table that is missing cannot be told from an outage."""
    database = sqlite3.connect(tmp_path / "db", timeout=0)
    other = sqlite3.connect(tmp_path / "db", isolation_level=None)
    database.executescript(TABLE)
    for name in ("ABORT", "FAIL"):
        database.execute(TRIGGERS.format(name=name, how=f"SELECT RAISE({name}, 'no')"))

    def of(sql: str, *values: object) -> set[str]:
        with pytest.raises((sqlite3.Error, ValueError, OverflowError)) as caught:
            database.execute(sql, values)
        database.rollback()
        return kinds(wrapped(sqlite3, caught.value))

    insert = "INSERT INTO t VALUES (?)"
    values = ["a", "bad", "ABORT", "FAIL", 2**70, "\ud800"]
    assert {str(value): of(insert, value) for value in values} == dict.fromkeys(
        map(str, values), REFUSED
    )
    assert of("SELECT * FROM nowhere") == OUTAGE
    other.execute("BEGIN EXCLUSIVE")
    assert of(insert, "b") == OUTAGE
    other.close()
    database.close()
    with pytest.raises(sqlite3.ProgrammingError) as closed:
        database.execute("SELECT 1")
    assert kinds(wrapped(sqlite3, closed.value)) == STATEMENT


def test_an_error_of_no_driver_is_one_of_the_value() -> None:
    assert kinds(UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates")) == REFUSED


def test_of_a_message_one_line_is_shown_in_which_all_is_masked() -> None:
    error = ValueError("no S3\nCRET\nCONTEXT: line 1")

    assert errors.in_one_line(error) == "no S3"
    assert errors.in_one_line(error, lambda text: text.replace("S3\nCRET", "•••")) == "no •••"
    assert errors.in_one_line(ValueError()) == "ValueError"


def test_a_refusal_is_quoted_unless_some_row_hides_something(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hidden: list[str] = []
    monkeypatch.setattr(errors, "_hides", [])
    errors.quote_nothing_if(lambda: bool(hidden))
    refusal, outage = of_state("P0001"), of_state("57P01")
    setting = ConfigurationError("THROTTLE_LIMIT: one")

    def said() -> list[str]:
        return [errors.said_of(error) for error in (refusal, outage, setting)]  # type: ignore[arg-type]  # any error

    assert said() == ["ProgrammingError: too much", "too much", "THROTTLE_LIMIT: one"]
    hidden.append("a card")
    assert said() == ["ProgrammingError", "too much", "THROTTLE_LIMIT: one"]
