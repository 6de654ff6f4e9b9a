"""What the migrations have frozen, held against the code.

`python -m tests.frozen_sql` prints the statements that a new migration has to execute: put them
into `hipq_django/migrations/sql`. Functions that are no longer called are dropped a release later,
because processes with the former code still call them while a deployment is under way.
"""

from __future__ import annotations

import os
import re
from hashlib import sha256
from pathlib import Path

import django

SCRIPTS = Path(__file__).parents[1] / "hipq_django" / "migrations" / "sql"


def frozen_functions() -> dict[str, str]:
    """Return the definitions of all functions that migrations create, by their names.

    Triggers have functions, too.
    """
    from hipq_django.migrations._scripts import SEPARATOR

    texts = [path.read_text().rstrip("\n") for path in sorted(SCRIPTS.glob("*_postgresql.sql"))]
    statements = [statement for text in texts for statement in text.split(SEPARATOR)]
    return {
        found.group(1): statement
        for statement in statements
        if (found := re.match(r"CREATE (?:OR REPLACE )?(?:FUNCTION|PROCEDURE) (\w+)\(", statement))
    }


def name_by_digest(definition: str) -> str:
    """Return the name that a function must have: what it does is what its name says."""
    pattern = r"CREATE (?:FUNCTION|PROCEDURE) (hipq_\w+)_[0-9a-f]{8}(\(.*)"
    found = re.match(pattern, definition, re.DOTALL)
    assert found
    return f"{found[1]}_{sha256(found[2].encode()).hexdigest()[:8]}"


def missing_functions() -> list[str]:
    """Return the definitions of the functions that the code calls and no migration creates."""
    from hipq_django.engines.statements import server_functions

    frozen = frozen_functions()
    return [f.definition for f in server_functions() if frozen.get(f.function) != f.definition]


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()
    from hipq_django.migrations._scripts import SEPARATOR

    print(SEPARATOR.join(missing_functions()))  # noqa: T201 - what it is run for
