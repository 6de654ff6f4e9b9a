"""The page of guarantees: its diagram is the state machine, and each of its races is acted out.

What it says of faults, of unique jobs, of jobs that follow others, of schedules and of flows is
held by tests elsewhere, which it names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from xml.etree import ElementTree

import pytest
from pytest_django import Settings

from hipq_django.conf.instances import LOST_AFTER_BEATS
from hipq_django.conf.options import INSTANCE
from hipq_django.domain.retries import MAX_LOSSES
from hipq_django.domain.states import MOVES, Outcome
from hipq_django.models import Answer
from hipq_django.processes.heartbeat import LOOKS_IN_A_BEAT
from tests.conftest import ROOT
from tests.declaring import Declare
from tests.docs.documents import GUARANTEES, codes_of
from tests.docs.scenes import LOSSES, RACES, Stage

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


def test_every_row_has_a_scene() -> None:
    for heading, scenes in (("Who wins a race", RACES), ("When a worker is lost", LOSSES)):
        assert {row for row, _ in scenes} == {row[0] for row in GUARANTEES.rows(heading)}


@pytest.fixture
def stage(settings: Settings) -> Iterator[Stage]:
    settings.HIPQ = {"default": {"CALLBACK_BASE_URL": "http://testserver"}}
    declare = Declare()
    yield Stage(declare)
    declare.forget_all()


@pytest.mark.conformance
@pytest.mark.django_db
@pytest.mark.parametrize("scene", [scene for _, scene in RACES + LOSSES])
def test_it_goes_as_the_page_says(stage: Stage, scene: Callable[[Stage], None]) -> None:
    scene(stage)


# What tests elsewhere hold

_TEST = re.compile(r"^(?:async )?def (test_\w+)", re.MULTILINE)
KNOWN_TESTS = {
    name for path in (ROOT / "tests").rglob("*.py") for name in _TEST.findall(path.read_text())
}


def test_every_row_that_is_not_acted_out_here_names_its_tests() -> None:
    acted = [*GUARANTEES.rows("Who wins a race"), *GUARANTEES.rows("When a worker is lost")]
    named = {
        row[0]: codes_of(row[-1])
        for table in GUARANTEES.tables()
        if table.head[0].startswith(("What ",))
        for row in table.rows
        if row not in acted
    }

    assert not [row for row, tests in named.items() if not tests]
    assert not {test for tests in named.values() for test in tests} - KNOWN_TESTS
