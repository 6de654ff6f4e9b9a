"""The code calls just the functions that migrations create."""

from __future__ import annotations

from hipq_django.engines.statements import server_functions
from tests.frozen_sql import frozen_functions, missing_functions


def test_migrations_create_what_the_code_calls() -> None:
    """Else write a migration: `python -m tests.frozen_sql` prints its statements."""
    assert missing_functions() == []


def test_no_function_is_frozen_that_nothing_calls() -> None:
    assert set(frozen_functions()) == {function.function for function in server_functions()}
