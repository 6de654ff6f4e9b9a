"""The page on what slows a queue tells of every finding, and of no other."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from hipq_django.monitoring.doctor import Level
from tests.docs.documents import OPERATIONS, REFERENCE, codes_of
from tests.unit.test_doctor import SICK

LEVELS = {codes_of(code)[0]: level for code, level, _ in OPERATIONS.headed("Code")}
FOUND = {tuple(name.partition(",")[0].split()) for name in SICK}


def test_every_finding_is_there() -> None:
    assert set(LEVELS) == {code for code, _ in FOUND}


def test_a_finding_has_the_levels_that_are_written() -> None:
    written = {(c, word) for c, text in LEVELS.items() for word in re.findall(r"[a-z]{7}", text)}

    assert {(code, word) for code, word in written if word in {*Level}} == FOUND


@pytest.mark.processes
@pytest.mark.usefixtures("vacuumed")
@pytest.mark.parametrize(
    ("environment", "code"),
    [
        ({}, 0),
        ({"DATABASE_URL": "postgres://nobody@127.0.0.1:1/nothing"}, 1),
        ({"DATABASE_URL": "sqlite:///:memory:"}, 4),
    ],
    ids=["well", "no database", "no migrations"],
)
def test_the_doctor_exits_with_the_code_that_is_written(
    process_environment: dict[str, str], environment: dict[str, str], code: int
) -> None:
    command = [sys.executable, "-m", "django", "hipq_doctor", "--json"]
    result = subprocess.run(
        command,
        env=process_environment | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert result.returncode == code, result.stderr
    assert str(code) in [row[0] for row in REFERENCE.headed("Exit code")]
    if code == 1:
        assert result.stderr.startswith("CommandError: database: ")
    if code == 4:
        assert json.loads(result.stdout)[0]["code"] == "missing_migrations"
