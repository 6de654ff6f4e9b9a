"""The checks of the crash tests on invented ledgers: each finds what it is for, and no more."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from chaos import page
from chaos.cells import CELLS
from chaos.checks import RULES, check
from chaos.collecting import unexpected
from chaos.databases import POSTGRES
from chaos.evidence import AnswerRow, Bounds, Crew, Evidence, JobRow, TimeoutRow
from chaos.figures import figures, full_seconds, idle_seconds, recovery_seconds
from chaos.fleet import Stopped
from chaos.ledger import Event, Ledger, Reader
from chaos.orders import TOMORROW, Order
from chaos.results import Outcome, Results, load, save

pytestmark = pytest.mark.embedded  # no database is touched

PID = 77


class Story:
    """Builds the evidence of a small cell, event by event."""

    def __init__(self) -> None:
        self._events: list[Event] = []

    def planned(self, key: str, at: float = 0.0, *, job_type: str = "plain", **order: Any) -> Story:
        """Let a job be planned, and its enqueue acknowledged at the same time."""
        made = Order(job_type=job_type, **order)
        self.event("planned", key, at, due=at + made.delay, order=asdict(made))
        return self if made.is_rolled_back else self.event("enqueued", key, at)

    def event(self, what: str, key: str, at: float, attempt: int = 0, **more: Any) -> Story:
        """Let something happen to a job, or without a key to nobody."""
        self._events.append(Event(at, what, PID, key, attempt, more))
        return self

    def begun(self, key: str, *times: float) -> Story:
        """Let attempts begin at these times."""
        for attempt, at in enumerate(times, 1):
            self.event("begin", key, at, attempt)
        return self

    def evidence(self, *jobs: JobRow, **more: Any) -> Evidence:
        """Return the evidence, with these rows in the database."""
        return Evidence(sorted(self._events, key=lambda event: event.at), jobs, **more)


def row(key: str, outcome: str = "succeeded", *, attempt: int = 1, **more: Any) -> JobRow:
    """Return the row of a final job, or of one in state running where the outcome is empty."""
    return JobRow(key, "final" if outcome else "running", outcome, attempt, **more)


def wrong(evidence: Evidence) -> dict[str, int]:
    """Return how much each rule finds wrong, where it finds anything."""
    return {name: len(texts) for name, texts in check(evidence).items() if texts}


def sound_story() -> Story:
    """Return the story of some jobs to which nothing happened that may not happen."""
    story = Story().planned("a").begun("a", 0.1).event("finished", "a", 0.2, outcome="succeeded")
    story.planned("b", job_type="receipt").begun("b", 0.1, 4.0)
    story.planned("c", delay=TOMORROW)
    story.planned("d", is_rolled_back=True)
    story.planned("e", delay=2.0).begun("e", 2.1)
    story.planned("f", job_type="payment").begun("f", 0.1)
    return story.event("answered", "f", 0.3, status="accepted", message="m")


def sound(**more: Any) -> Evidence:
    """Return the evidence of that story."""
    answer = {"key": "f"}
    rows = (row("a", result={"attempt": 1}), row("b", attempt=2), row("e"), row("f", result=answer))
    later = JobRow("c", "initial", "", 0)
    answers = (AnswerRow("f", "m", "response", "accepted", answer),)
    values: dict[str, Any] = {"answers": answers, "receipts": frozenset({"b"}), **more}
    return sound_story().evidence(*rows, later, **values)


def test_a_sound_cell_has_nothing_wrong() -> None:
    assert wrong(sound(crew=Crew(3, 3))) == {}


@pytest.mark.parametrize(
    "change",
    [
        lambda found: replace(found, jobs=found.jobs[1:]),
        lambda found: replace(found, jobs=(*found.jobs, found.jobs[0])),
        lambda found: replace(found, jobs=(*found.jobs, row("d"))),
        lambda found: replace(found, receipts=frozenset()),
    ],
    ids=["an acknowledged job is gone", "it is there twice", "a rolled back one is there", "a row"],
)
def test_lost_work_is_found(change: Callable[[Evidence], Evidence]) -> None:
    assert wrong(change(sound())) == {"lost": 1}


def test_a_job_that_does_not_end_is_stuck() -> None:
    found = Story().planned("a").begun("a", 0.1).evidence(row("a", ""))

    assert wrong(found) == {"stuck": 1}


@pytest.mark.parametrize(
    ("outcomes", "job"),
    [
        (["succeeded", "succeeded"], row("a")),
        (["cancelled"], row("a")),
        (["succeeded"], row("a", attempt=2, result={"attempt": 1})),
    ],
    ids=["two ends", "another end than was said", "the result of an attempt that is over"],
)
def test_a_second_end_is_found(outcomes: list[str], job: JobRow) -> None:
    story = Story().planned("a")
    for outcome in outcomes:
        story.event("finished", "a", 0.2, outcome=outcome)

    assert wrong(story.evidence(job)) == {"ended_twice": 1}


@pytest.mark.parametrize("outcome", ["failed", "timed_out", "cancelled"])
def test_an_innocent_job_that_fails_has_a_wrong_end(outcome: str) -> None:
    assert wrong(Story().planned("a").evidence(row("a", outcome))) == {"wrong_outcome": 1}


@pytest.mark.parametrize(
    ("what", "more"),
    [
        ("finished", {"outcome": "cancelled"}),
        ("cancelled", {}),
        ("answered", {"status": "accepted", "message": "m"}),
        ("answered", {"status": "early", "message": "m"}),
    ],
)
def test_a_start_after_the_end_is_found(what: str, more: dict[str, Any]) -> None:
    job = row("a", "cancelled")
    answers = (AnswerRow("a", "m", "response", "late"),)

    def started(at: float) -> Evidence:
        story = Story().planned("a", ends=("cancelled",)).event(what, "a", 1.0, **more)
        return story.begun("a", at).evidence(job, answers=answers)

    assert wrong(started(1.4)) == {}
    assert wrong(started(1.6)) == {"started_after_end": 1}


def test_a_start_in_a_paused_queue_is_found() -> None:
    def started(at: float) -> Evidence:
        story = Story().planned("a", job_type="pausing").event("paused", "", 1.0)
        return story.event("resuming", "", 3.0).begun("a", at).evidence(row("a"))

    assert wrong(started(1.4)) == wrong(started(3.1)) == {}
    assert wrong(started(2.0)) == {"started_after_end": 1}


def test_a_timeout_before_its_time_is_found() -> None:
    def timed_out(at: float) -> Evidence:
        story = Story().planned("a", timeout=4.0).begun("a", 1.0, 8.0)
        return story.evidence(row("a", attempt=2), timeouts=(TimeoutRow("a", 1, at),))

    assert wrong(timed_out(5.1)) == {}
    assert wrong(timed_out(4.0)) == {"too_early": 1}


def tenants(*runs: tuple[float, float]) -> Evidence:
    """Return the evidence of jobs of one tenant that ran from and to these times."""
    story = Story()
    for key, (begin, end) in enumerate(runs):
        story.planned(str(key), job_type="tenant", data={"tenant": "A"})
        story.begun(str(key), begin).event("end", str(key), end, 1)
    return story.evidence(*(row(str(key)) for key in range(len(runs))))


def test_handlers_that_overlap_above_their_limit_are_found() -> None:
    assert wrong(tenants((0.0, 1.0), (0.5, 2.0), (1.0, 3.0))) == {}
    assert wrong(tenants((0.0, 1.1), (0.5, 2.0), (1.0, 3.0))) == {"above_limit": 1}


def test_starts_above_a_rate_are_found() -> None:
    def started(every: float) -> Evidence:
        story, keys = Story(), [str(number) for number in range(11)]
        for number, key in enumerate(keys):
            story.planned(key, job_type="rated").begun(key, number * every)
        return story.evidence(*map(row, keys))

    assert wrong(started(0.2)) == {}
    assert wrong(started(0.196)) == {}  # who writes it may have to wait for a core
    assert wrong(started(0.18)) == {"above_rate": 1}


@pytest.mark.parametrize(
    "answers",
    [
        (),
        (AnswerRow("f", "m", "response", "accepted", {"key": "f"}),) * 2,
        (AnswerRow("f", "m", "response", "accepted", {"key": "other"}),),
    ],
    ids=["it is gone", "it is there twice", "the job has another result"],
)
def test_an_acknowledged_answer_that_does_not_count_is_found(answers: tuple[AnswerRow]) -> None:
    assert set(wrong(sound(answers=answers))) == {"wrong_answers"}


@pytest.mark.parametrize(
    ("crew", "count"),
    [
        (Crew(3, 2), 1),
        (Crew(3, 3, lost=2), 2),
        (Crew(3, 3, stopped=Stopped(died=1)), 1),
        (Crew(3, 3, stopped=Stopped(killed=1)), 1),
        (Crew(3, 3, stopped=Stopped(failed=1)), 1),
    ],
    ids=["no beat", "given up", "died", "had to be killed", "exit code"],
)
def test_a_worker_that_is_not_well_is_found(crew: Crew, count: int) -> None:
    assert wrong(sound(crew=crew)) == {"bad_workers": count}


def test_an_exception_that_nobody_explains_is_found_in_the_log(tmp_path: Path) -> None:
    log = tmp_path / "workers.log"
    frames = 'Traceback (most recent call last):\n  File "x.py", line 1, in f\n    f()\n'
    log.write_text(
        f"INFO all is well\n{frames}chaos.project.jobs.PlannedError: as planned\n"
        f"{frames}django.db.utils.OperationalError: server closed\nDETAIL: none\n"
        f"{frames}KeyError: 'queue'\n\nDuring handling of the above exception, another exception "
        f"occurred:\n\n{frames}django.db.utils.OperationalError: server closed\n"
        f"{indent(frames, '  ')}  ValueError: max() iterable argument is empty\nINFO on\n"
    )

    found = list(unexpected(log))

    assert found == ["ValueError: max() iterable argument is empty"]
    assert wrong(sound(logged=found)) == {"unexpected_errors": 1}


def test_a_worker_that_starts_nothing_for_long_is_found() -> None:
    story = Story().planned("a", 2.0).begun("a", 2.1).event("load over", "", 9.0)
    found = story.evidence(row("a"), crew=Crew(1, 1, pids=(PID,)), bounds=Bounds(longest_idle=5))

    assert idle_seconds(PID, found) == pytest.approx(6.9)
    assert wrong(found) == {"too_slow": 1}


def faulty() -> Evidence:
    """Return the evidence of ten starts a second, a fault, and a slow recovery."""
    story = Story().event("load", "", 0.0)
    times = [n / 10 for n in range(50)] + [8.0, 9.5] + [10 + n / 10 for n in range(20)]
    for number, at in enumerate(times):
        story.planned(str(number), at).begun(str(number), at)
    story.event("fault", "", 5.0).event("calm", "", 6.0).event("load over", "", 12.0)
    return story.evidence(*(row(str(number)) for number in range(len(times))))


def test_recovery_is_the_time_until_the_next_start_and_until_the_load_is_carried_again() -> None:
    found = faulty()

    assert recovery_seconds(found) == pytest.approx(2.0)
    assert full_seconds(found) == pytest.approx(3.5)
    assert wrong(replace(found, bounds=Bounds(recovery=1.5))) == {"too_slow": 1}


def test_what_is_written_to_the_ledger_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ledger, reader = Ledger(path), Reader(path)
    ledger.write("begin", "a", 2, seconds=0.5)
    with path.open("ab") as file:
        file.write(b'{"at": 1.0, "wh')  # a line that is being written

    [event] = reader.read()

    assert (event.what, event.key, event.attempt, event.pid) == ("begin", "a", 2, os.getpid())
    assert event.more == {"seconds": 0.5}
    assert reader.read() == []


def outcome(**counts: int) -> Outcome:
    """Return the outcome of a cell in which these rules found so much wrong."""
    return Outcome(
        figures=figures(sound(crew=Crew(3, 3))),
        counts={rule.name: counts.get(rule.name, 0) for rule in RULES},
        examples={name: ["job | a `b`"] for name in counts},
    )


def test_the_page_says_what_held_and_what_did_not(tmp_path: Path) -> None:
    found = Results(date="2026-01-01", machine={"cores": "2", "Python": "3.11"})
    found.outcomes = {
        "calm": {POSTGRES: outcome()},
        "outage": {POSTGRES: outcome(stuck=3)},
        "disk-full": {POSTGRES: Outcome(skipped="nothing can be mounted here")},
    }
    save(found, tmp_path / "results.json")

    text = page.page(load(tmp_path / "results.json"))

    assert "**1 of 2 cells held.**" in text
    assert "1 could not be run on this machine." in text
    assert "| **Stuck: 3** |" in text
    assert "* Stuck: `job / a 'b'`" in text
    assert "not run: nothing can be mounted here" in text
    assert all(f"(`{cell.name}`)" in text for cell in CELLS)


# What a fault is made of
