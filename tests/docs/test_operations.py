"""The page on what slows a queue tells of every finding, and of no other."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hipq_django.monitoring.doctor import Level
from tests.docs.documents import OPERATIONS, REFERENCE, codes_of
from tests.processes.forked import ForkedProcess
from tests.unit.test_doctor import SICK

LEVELS = {codes_of(code)[0]: level for code, level, _ in OPERATIONS.headed("Code")}
FOUND = {tuple(name.partition(",")[0].split()) for name in SICK}


def test_every_finding_is_there() -> None:
    assert set(LEVELS) == {code for code, _ in FOUND}


def test_a_finding_has_the_levels_that_are_written() -> None:
    written = {(c, word) for c, text in LEVELS.items() for word in re.findall(r"[a-z]+", text)}

    assert {(code, word) for code, word in written if word in {*Level}} == FOUND


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
        doctor = ForkedProcess(["hipq_doctor", "--json"], process_environment | environment, log)
        assert (doctor.wait(60), str(code) in written) == (code, True), log.read_text()
        printed[code] = log.read_text()
    assert printed[1].startswith("CommandError: database: ")
    assert json.loads(printed[4])[0]["code"] == "missing_migrations"
