"""The pure parts of the benchmark: medians, ratios, targets, page and charts. Nothing is timed."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks import (
    page,
    results,
    rounds,
    runs,
    soak_report,
    states,
    states_report,
    targets,
)
from benchmarks.hipq.limits_at_work import full_share, loads
from benchmarks.report import Spread, better, rows
from benchmarks.results import DifferentMachineError, Results
from benchmarks.rounds import Plan
from benchmarks.runs import Outcome
from benchmarks.services import Services
from benchmarks.systems import all_systems
from benchmarks.workloads import WORKLOADS, Figure, by_id

pytestmark = pytest.mark.embedded  # no database is touched

SYSTEMS = all_systems()
MORE, LESS = Figure("rate", "rate", ""), Figure("delay", "delay", "ms", more_is_better=False)


def measured(**values: list[float]) -> Results:
    """Return results of W3 in which each named system has these values."""
    found = Results(machine={"cores": "2"}, date="2026-01-01", rounds=2)
    for name, series in values.items():
        found.versions[name] = {}
        for value in series:
            found.add("W3", name, {"jobs_per_second": value})
    return found


@pytest.mark.parametrize(("figure", "ratio"), [(MORE, 2.0), (LESS, 0.5)])
def test_a_ratio_above_one_means_that_ours_is_better(figure: Figure, ratio: float) -> None:
    assert better(figure, Spread((10.0,)), Spread((5.0,))) == ratio


def test_a_ratio_is_made_of_figures_of_the_same_round() -> None:
    """The second round met a machine of half the speed, which is nobody's merit."""
    assert better(MORE, Spread((30.0, 16.0, 15.0)), Spread((10.0, 8.0, 5.0))) == 3.0


def test_the_best_system_stands_first_with_its_ratio() -> None:
    found = rows(
        measured(hipq_django=[100.0, 300.0], chancy=[25.0, 75.0], huey=[400.0, 1200.0]),
        by_id("W3"),
        SYSTEMS,
    )

    assert [(row.system.name, row.ratio) for row in found] == [
        ("huey", 0.25),
        ("hipq_django", None),
        ("chancy", 4.0),
    ]


def test_a_peer_that_is_ahead_is_told_and_a_floor_is_not() -> None:
    found = measured(hipq_django=[200.0], chancy=[50.0], huey=[800.0], floor_psycopg=[900.0])

    assert targets.leads(found, SYSTEMS) == ["W3, jobs per second: Huey (Redis) (0.25)."]


def verdict(found: Results, workload: str, what: str) -> tuple[float | None, bool | None]:
    """Return what was reached of one target, and whether that is enough."""
    [verdict] = [
        verdict
        for verdict in targets.verdicts(found)
        if (verdict.target.of.workload, verdict.target.what) == (workload, what)
    ]
    return verdict.reached, verdict.is_met


@pytest.mark.parametrize(("rate", "is_met"), [(25_000.0, True), (24_999.0, False)])
def test_a_number_is_reached_or_missed(rate: float, is_met: bool) -> None:
    found = measured(hipq_django=[rate])

    assert verdict(found, "W3", "one worker") == (rate, is_met)


def test_what_was_not_measured_is_neither_reached_nor_missed() -> None:
    found = measured(hipq_django=[1_000.0])

    assert verdict(found, "W3", "against pgqueuer") == (None, None)
    assert verdict(found, "W5", "median") == (None, None)


def test_every_target_is_about_figures_that_are_measured() -> None:
    shown = {(workload.id, figure.name) for workload in WORKLOADS for figure in workload.figures}
    known = {workload.id: workload for workload in WORKLOADS}
    measuring = {(system.name, name) for system in SYSTEMS for name in system.workloads}

    for target in targets.TARGETS:
        for of in (target.of, *target.against):
            if of.workload in known:
                assert (of.workload, of.figure) in shown
                assert (of.system, of.workload) in measuring


def compared(before: list[float], now: list[float], figure: str = "jobs_per_second") -> Results:
    """Return a comparison of two states by one figure of W1 or W5."""
    found = Results(date="2026-01-01", rounds=len(now))
    for state, commit in ((states_report.BEFORE, "1234567"), (states_report.NOW, "89abcde")):
        found.versions[state] = {"commit": commit, "subject": f"Subject of {commit}"}
    workload = "W1" if figure.endswith("per_second") else "W5"
    for state, series in ((states_report.BEFORE, before), (states_report.NOW, now)):
        for value in series:
            found.add(workload, state, {figure: value})
    return found


def test_two_states_are_compared_by_the_median_of_the_rounds_ratios() -> None:
    [change] = states_report.changes(compared([100.0, 50.0, 10.0], [98.0, 60.0, 9.0]))

    assert (change.ratio, change.is_enough) == (0.98, True)
    assert change.before.median == 50.0


@pytest.mark.parametrize(
    ("figure", "before", "now", "is_as_fast"),
    [
        ("jobs_per_second", 100.0, 97.0, True),
        ("jobs_per_second", 100.0, 96.9, False),
        ("p50_ms", 97.0, 100.0, True),
        ("p50_ms", 96.9, 100.0, False),
    ],
)
def test_a_state_is_as_fast_within_the_bound(
    figure: str, before: float, now: float, is_as_fast: bool
) -> None:
    assert states_report.is_as_fast(compared([before], [now], figure)) is is_as_fast


@pytest.mark.parametrize(
    ("number", "low", "high"),
    [(1, 1, 1), (5, 1, 5), (6, 1, 6), (9, 2, 8), (25, 8, 18), (100, 40, 61)],
)
def test_the_bounds_of_a_median_are_those_of_the_sign_test(
    number: int, low: int, high: int
) -> None:
    """The ranks are those of the published tables for 95 %."""
    values = [float(rank) for rank in range(1, number + 1)]

    assert states_report.median_bounds(values[::-1]) == (low, high)


def test_a_state_is_not_as_fast_where_nothing_was_measured_or_a_run_failed() -> None:
    assert not states_report.is_as_fast(compared([], []))

    found = compared([1.0], [1.0])
    found.add_error("W3", states_report.NOW, "a worker left with 1")
    assert not states_report.is_as_fast(found)
    assert "* W3 failed (now): a worker left with 1" in states_report.page(found)


def test_every_workload_that_is_compared_is_ours_and_has_a_judged_figure() -> None:
    for name in states_report.COMPARED:
        assert name in states.system_of(by_id(name)).workloads
        figures = {figure.name for figure in by_id(name).figures}
        assert figures - set(states_report.NOT_JUDGED)


SAMPLE = {"table_bytes": 1_048_576, "index_bytes": 0, "waiting": 2, "held": False}


def soaked(*rates: float) -> dict[str, float]:
    samples = [
        {**SAMPLE, "second": number, "jobs_per_second": rate, "held": False}
        for number, rate in enumerate(rates)
    ]
    return soak_report.figures({"rate": 10.0, "samples": samples})


def test_a_soak_is_judged_by_its_second_and_its_last_quarter() -> None:
    assert soaked(1.0, 10.0, 2.0, 9.0) == {
        "throughput_early": 10.0,
        "throughput_late": 9.0,
        "megabytes_early": 1.0,
        "megabytes_late": 1.0,
        "seconds_behind": 0.2,
    }


def test_results_survive_the_file(tmp_path: Path) -> None:
    found = measured(hipq_django=[1.0, 2.0])
    found.add_error("W3", "celery", "took more than 300 s")
    found.add_error("W3", "celery", "took more than 300 s")

    results.save(found, tmp_path / "benchmarks.json")

    assert results.load(tmp_path / "benchmarks.json") == found
    assert found.errors == {"W3": {"celery": ["took more than 300 s"]}}


def test_figures_of_two_machines_are_not_merged() -> None:
    with pytest.raises(DifferentMachineError, match="cores was '2'"):
        results.merged(Results(machine={"cores": "2"}), Results(machine={"cores": "4"}))


def test_the_page_shows_figures_failures_and_what_could_not_be_had() -> None:
    found = measured(hipq_django=[1_000.0, 3_000.0], chancy=[250.0, 750.0])
    found.missing["celery"] = "pip found no such version"
    found.add_error("W3", "huey", "There is no redis-server")

    text = page.page(found, SYSTEMS)

    assert "* hipq_django: jobs per second 2,000 (1,000 to 3,000)" in text
    assert "Huey (Redis) failed: `There is no redis-server`" in text
    assert "not measured: pip found no such version" in text
    assert "$" not in text


def test_every_system_has_known_workloads_and_pinned_requirements() -> None:
    known = {workload.id for workload in WORKLOADS}

    for system in SYSTEMS:
        assert set(system.workloads) <= known
        assert all("==" in requirement for requirement in system.requirements)


def test_a_run_that_was_cut_off_goes_on_with_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def run(*run: Any) -> Outcome:
        ran.append(run[3].name)
        if len(ran) == 4:
            raise KeyboardInterrupt
        return Outcome({"jobs_per_second": 1.0})

    monkeypatch.setattr(rounds, "_run", run)
    three = [system for system in SYSTEMS if not system.requirements][:3]
    path = tmp_path / "benchmarks.json"
    plan = Plan([*three], [by_id("W3"), by_id("W12")], 2, False, tmp_path, path)
    with pytest.raises(KeyboardInterrupt):
        rounds.measure(plan, Services(""), Results())

    rounds.measure(replace(plan, resume=True), Services(""), results.load(path))

    one_round = ["hipq_django", "floor_psycopg", "hipq_django_sqlite"]
    assert ran == [*one_round, "hipq_django", *one_round]
    assert results.load(path).tries == {
        "W3": {"hipq_django": 2, "floor_psycopg": 2},
        "W12": {"hipq_django_sqlite": 2},
    }


def test_a_queue_is_full_when_the_next_job_does_not_fit() -> None:
    spans = [(0.0, 2.0, 2.0), (1.0, 3.0, 1.0), (2.0, 4.0, 2.0)]

    assert max(load for _, _, load in loads(spans)) == 3.0
    assert full_share(spans, limit=3.0) == pytest.approx(0.5)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="there is no /proc")
def test_what_a_run_left_behind_is_killed() -> None:
    sleeper = [sys.executable, "-c", "print(flush=True); import time; time.sleep(999)"]
    environments = [{**os.environ, runs.MARK: mark} for mark in ("mine", "other")]
    mine, other = (
        subprocess.Popen(sleeper, env=env, stdout=subprocess.PIPE, start_new_session=True)
        for env in environments
    )
    with mine, other:
        for process in (mine, other):
            assert process.stdout
            process.stdout.readline()

        runs.kill_marked("mine")

        assert mine.wait() == -signal.SIGKILL
        assert other.poll() is None
        other.kill()
