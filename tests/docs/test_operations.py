"""The page on what slows a queue tells of every finding, and of no other."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hipq_django.monitoring import doctor
from hipq_django.monitoring.doctor import Level
from tests.docs.documents import OPERATIONS, REFERENCE, codes_of
from tests.processes.forked import ForkedProcess

LEVELS = {codes_of(code)[0]: level for code, level, _ in OPERATIONS.headed("Code")}
MADE = re.compile(r"\b(problem|warning|note|Finding)\(([^(\"]*)\"(\w+)\",")
"""How the code makes a finding: its level, as a function or a condition, and its code."""


def test_every_finding_is_there_with_its_levels() -> None:
    source = "".join(path.read_text() for path in Path(doctor.__file__).parent.glob("*.py"))
    made = {
        (code, level)
        for function, condition, code in MADE.findall(source)
        for level in ([function] if function in {*Level} else levels_in(condition))
    }
    of_endings = {(c, each) for c in ("failing", "timing_out") for each in ("problem", "warning")}

    assert {(c, each) for c, text in LEVELS.items() for each in levels_in(text)} == (
        made | of_endings
    )


def levels_in(text: str) -> set[str]:
    return {level for level in Level if level in text.casefold()}


@pytest.mark.conformance
@pytest.mark.processes
def test_the_doctor_exits_with_the_code_that_is_written(
    process_environment: dict[str, str], tmp_path: Path
) -> None:
    written = [row[0] for row in REFERENCE.headed("Exit code")]
    away = {"DATABASE_URL": "postgres://nobody@127.0.0.1:1/nothing"}
    unmigrated = {"DATABASE_URL": "sqlite:///:memory:"}
    printed = {}

    for code, environment in {0: {}, 1: away, 4: unmigrated}.items():
        log = tmp_path / f"{code}"
        process = ForkedProcess(["hipq_doctor", "--json"], process_environment | environment, log)
        assert (process.wait(60), str(code) in written) == (code, True), log.read_text()
        printed[code] = log.read_text()
    assert printed[1].startswith("CommandError: database: ")
    assert json.loads(printed[4])[0]["code"] == "missing_migrations"
