"""The page of guarantees: its diagram is the state machine, and its rows name tests."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from hipq_django.conf.instances import LOST_AFTER_BEATS
from hipq_django.conf.options import INSTANCE
from hipq_django.domain.retries import MAX_LOSSES
from hipq_django.domain.states import MOVES, Outcome
from hipq_django.models import Answer
from hipq_django.processes.heartbeat import LOOKS_IN_A_BEAT
from tests.conftest import ROOT
from tests.docs.documents import GUARANTEES, codes_of

MOVES_OF_THE_CODE = {(str(old), str(new)) for old, news in MOVES.items() for new in news}


def test_the_diagram_has_the_moves_of_the_state_machine() -> None:
    arrows = ElementTree.parse(ROOT / "docs" / "states.svg").findall(".//*[@data-from]")

    assert {(arrow.get("data-from"), arrow.get("data-to")) for arrow in arrows} == MOVES_OF_THE_CODE


def test_the_table_has_the_moves_of_the_state_machine() -> None:
    written = {tuple(codes_of(f"{old} {new}")) for old, new, _ in GUARANTEES.rows("States")}

    assert written == MOVES_OF_THE_CODE


def test_every_outcome_and_every_status_of_an_answer_is_explained() -> None:
    assert set(Outcome) - {Outcome.NONE} <= set(codes_of(GUARANTEES.section("States")))
    statuses = {code for row in GUARANTEES.rows("Answers") for code in codes_of(row[0])}
    assert statuses == set(Answer.Status.values)


def test_the_times_are_those_of_the_code() -> None:
    beat = INSTANCE.defaults["HEARTBEAT_SECONDS"]
    silence = beat * LOST_AFTER_BEATS

    assert (LOST_AFTER_BEATS, MAX_LOSSES) == (3, 3)  # the page has both in words
    clocks = " ".join(GUARANTEES.section("Two clocks").split())
    assert f"`HEARTBEAT_SECONDS`, {beat}" in clocks
    looks = 1.2 * beat / LOOKS_IN_A_BEAT  # seconds between two looks at most
    assert f"noticed {silence} to {silence + 2 * looks:g} seconds after" in clocks
    assert f"it is {silence} to {silence + looks:g} seconds after the start" in clocks
    assert f"`ANSWER_TTL_SECONDS`, {INSTANCE.defaults['ANSWER_TTL_SECONDS']:,}" in GUARANTEES.text


_TEST = re.compile(r"^(?:async )?def (test_\w+)", re.MULTILINE)
KNOWN_TESTS = {
    name for path in (ROOT / "tests").rglob("*.py") for name in _TEST.findall(path.read_text())
}


def test_every_row_of_a_promise_names_its_tests() -> None:
    named = {
        row[0]: codes_of(row[-1])
        for table in GUARANTEES.tables()
        if table.head[0].startswith("What ")
        for row in table.rows
    }

    assert len(named) > 60
    assert not [row for row, tests in named.items() if not tests]
    assert not {test for tests in named.values() for test in tests} - KNOWN_TESTS
