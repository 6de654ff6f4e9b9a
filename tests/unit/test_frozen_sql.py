"""The code calls just the functions that migrations create."""

from __future__ import annotations

from hipq_django.engines.statements import server_functions
from tests.frozen_sql import frozen_functions, missing_functions, name_by_digest


def test_migrations_create_what_the_code_calls() -> None:
    """Else write a migration: `python -m tests.frozen_sql` prints its statements."""
    assert missing_functions() == []


OF_FORMER_RELEASE = {
    "hipq_enqueue_with_extra_1edfb585",
    "hipq_probe_queues_61c260aa",
    "hipq_lock_8ecabbee",
    "hipq_claim_fitting_a374d6a4",
}
"""Its processes call them while a deployment is under way; a migration will drop them."""


def test_no_function_is_frozen_that_nothing_calls() -> None:
    of_triggers = {name for name, text in frozen_functions().items() if "RETURNS trigger" in text}

    called = {function.function for function in server_functions()}
    assert set(frozen_functions()) - of_triggers - called == OF_FORMER_RELEASE


def test_the_name_of_each_function_says_what_it_does() -> None:
    """Also of triggers: processes of two releases may need two of them."""
    for name, definition in frozen_functions().items():
        assert name == name_by_digest(definition)
