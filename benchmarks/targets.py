"""What hipq_django is to reach, as data, and whether it did. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.report import better, ratio, rows, values
from benchmarks.systems import all_systems
from benchmarks.workloads import WORKLOADS, by_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.results import Results
    from benchmarks.systems import System

OURS, SQLITE = "hipq_django", "hipq_django_sqlite"
SOAK, SOAK_HELD = "soak", "soak_held"
"""Under these names the figures of the two soaks stand beside those of the workloads."""


@dataclass(frozen=True)
class Of:
    """A figure of a workload."""

    workload: str
    figure: str = "jobs_per_second"
    system: str = OURS


@dataclass(frozen=True)
class Target:
    """A bound for a figure, or for its ratio to the best of the figures that it is `against`."""

    what: str
    of: Of
    at_least: float | None = None
    at_most: float | None = None
    unit: str = ""
    against: tuple[Of, ...] = ()

    @property
    def wanted(self) -> str:
        """The bound, as it is shown."""
        sign, bound = ("≥", self.at_least) if self.at_most is None else ("≤", self.at_most)
        return f"{sign} {bound:,.10g}{self.suffix}"

    @property
    def suffix(self) -> str:
        """What stands behind the numbers."""
        return " ×" if self.against else f" {self.unit}".rstrip()  # noqa: RUF001 - a factor


@dataclass(frozen=True)
class Verdict:
    """What was reached of a target; None where it was not measured."""

    target: Target
    reached: float | None

    @property
    def is_met(self) -> bool | None:
        """Whether it is enough; None where it was not measured."""
        if self.reached is None:
            return None
        least, most = self.target.at_least, self.target.at_most
        return (least is None or self.reached >= least) and (most is None or self.reached <= most)


def _peers_on_postgresql(workload: str) -> tuple[Of, ...]:
    return tuple(
        Of(workload, system=system.name)
        for system in all_systems()
        if system.is_peer and system.store == "postgres" and workload in system.workloads
    )


def _peers(workload: str, figure: str) -> tuple[Of, ...]:
    return tuple(
        Of(workload, figure, system.name)
        for system in all_systems()
        if system.is_peer and workload in system.workloads
    )


def _peer(workload: str, system: str) -> tuple[Of, ...]:
    return (Of(workload, system=system),)


def _at(workload: str, concurrency: int) -> Of:
    return Of(workload, f"jobs_per_second_at_{concurrency}")


TARGETS = (
    Target(
        "against the bare `create` of the same row",
        Of("W1"),
        at_least=0.9,
        against=(Of("W1", "bare_creates_per_second"),),
    ),
    Target(
        "against the best peer on PostgreSQL",
        Of("W1"),
        at_least=1,
        against=_peers_on_postgresql("W1"),
    ),
    Target("many at once", Of("W2"), at_least=100_000, unit="jobs/s"),
    Target("against pgqueuer", Of("W2"), at_least=1.3, against=_peer("W2", "pgqueuer")),
    Target("one worker", Of("W3"), at_least=25_000, unit="jobs/s"),
    Target(
        "against the raw batch floor",
        Of("W3"),
        at_least=0.6,
        against=_peer("W3", "floor_psycopg"),
    ),
    Target("against pgqueuer", Of("W3"), at_least=1, against=_peer("W3", "pgqueuer")),
    Target("against Procrastinate", Of("W3"), at_least=25, against=_peer("W3", "procrastinate")),
    Target(
        "against django-tasks-db", Of("W3"), at_least=50, against=_peer("W3", "django_tasks_db")
    ),
    *(
        target
        for where, system in (("PostgreSQL", OURS), ("SQLite", SQLITE))
        for workload in ("W3b", "W3c")
        for target in (
            Target(
                f"attempts that fail against jobs that succeed, {where}",
                Of(workload, "share", system),
                at_least=0.4,
            ),
            Target(
                f"peak memory meanwhile, {where}",
                Of(workload, "storm_memory_mb", system),
                at_most=100,
                unit="MB",
            ),
        )
    ),
    *(
        Target(f"0.4 s from the database, {what}", Of("W3d", figure), at_least=50, unit="jobs/s")
        for what, figure in (
            ("no limit", "jobs_per_second"),
            ("limit 100", "jobs_per_second_limited"),
            ("100 tenants", "jobs_per_second_many_keys"),
        )
    ),
    Target("two workers against one", Of("W4"), at_least=1.5, against=(Of("W3"),)),
    Target(
        "against two workers of pgqueuer", Of("W4"), at_least=1, against=_peer("W4", "pgqueuer")
    ),
    Target(
        "32 threads against 8: at least 0.9 of linear",
        _at("W4b", 32),
        at_least=3.6,
        against=(_at("W4b", 8),),
    ),
    Target(
        "two processes against one, 8 threads each: at least 0.9 of linear",
        _at("W4c", 8),
        at_least=1.8,
        against=(_at("W4b", 8),),
    ),
    Target(
        "two processes against one, 32 threads each: at least 0.9 of linear",
        _at("W4c", 32),
        at_least=1.8,
        against=(_at("W4b", 32),),
    ),
    Target("median", Of("W5", "p50_ms"), at_most=2.5, unit="ms"),
    Target("99th percentile", Of("W5", "p99_ms"), at_most=6, unit="ms"),
    Target("idle", Of("W5", "idle_core_percent"), at_most=1, unit="% of a core"),
    Target(
        "16 clients with wake-ups against without",
        Of("W5b", "commits_per_second_with_notify"),
        at_least=0.95,
        against=(Of("W5b", "commits_per_second"),),
    ),
    *(
        Target(f"polling alone, {where}: {what}", Of("W5c", figure, system), None, most, "ms")
        for where, system in (("PostgreSQL", OURS), ("SQLite", SQLITE))
        for what, figure, most in (("median", "p50_ms", 30), ("99th percentile", "p99_ms", 120))
    ),
    *(
        Target(
            f"beside a storm, {where}: 99th percentile",
            Of("W5d", "p99_ms", system),
            at_most=100,
            unit="ms",
        )
        for where, system in (("PostgreSQL", OURS), ("SQLite", SQLITE))
    ),
    Target("large table against an empty one", Of("W6"), at_least=0.9, against=(Of("W3"),)),
    Target("in a full drain", Of("W7", "transactions_per_job"), at_most=0.01, unit="a job"),
    Target("peak memory of a worker", Of("W7", "memory_mb"), at_most=100, unit="MB"),
    Target(
        "peak memory over 1,000,000 jobs",
        Of("W7b", "million_memory_mb"),
        at_most=100,
        unit="MB",
    ),
    Target(
        "memory flat over 1,000,000 jobs: at the end against after a fifth",
        Of("W7b", "million_memory_at_end_mb"),
        at_most=1.05,
        against=(Of("W7b", "million_memory_early_mb"),),
    ),
    *(
        target
        for workers, number in (("one worker", 1), ("two workers", 2))
        for target in (
            Target(
                f"limit against none, {workers}",
                Of("W8", f"jobs_per_second_{number}"),
                at_least=0.5,
                against=(Of("W8", f"unlimited_jobs_per_second_{number}"),),
            ),
            Target(
                f"greatest sum of weights ever seen running, {workers}",
                Of("W8", f"most_running_{number}"),
                at_most=100,
            ),
        )
    ),
    *(
        Target(what, Of("W9", figure), at_least=least, unit="answers/s")
        for what, figure, least in (
            ("one by one, one client", "answers_per_second", 1_500),
            ("one by one, four threads of a process", "answers_per_second_threads", 1_500),
            ("from Kafka", "answers_per_second_from_kafka", 5_000),
            ("in batches", "answers_per_second_in_batches", 15_000),
        )
    ),
    Target(
        "200 queues against one",
        Of("W10", "jobs_per_second_many_queues"),
        at_least=0.7,
        against=(Of("W10", "jobs_per_second_one_queue"),),
    ),
    Target(
        "10,000 tenants against none",
        Of("W10", "jobs_per_second_many_keys"),
        at_least=0.7,
        against=(Of("W10", "jobs_per_second_one_queue"),),
    ),
    Target("greatest sum of weights ever in flight", Of("W11", "most"), at_most=10),
    Target("on SQLite", Of("W12", system=SQLITE), at_least=10_000, unit="jobs/s"),
    Target(
        "on SQLite against Huey's",
        Of("W12", system=SQLITE),
        at_least=1,
        against=_peer("W12", "huey_sqlite"),
    ),
    Target(
        "messages through three nodes",
        Of("W13", "messages_per_second"),
        at_least=10_000,
        unit="messages/s",
    ),
    Target(
        "the same on SQLite", Of("W13", "messages_per_second", SQLITE), at_least=5_000, unit="/s"
    ),
    Target(
        "against the best peer",
        Of("W13", "messages_per_second"),
        at_least=10,
        against=_peers("W13", "messages_per_second"),
    ),
    Target("runs of nodes", Of("W14", "steps_per_second_1"), at_least=2_500, unit="runs/s"),
    Target(
        "the same on SQLite", Of("W14", "steps_per_second_1", SQLITE), at_least=600, unit="runs/s"
    ),
    Target(
        "two workers against one",
        Of("W14", "steps_per_second_2"),
        at_least=1.4,
        against=(Of("W14", "steps_per_second_1"),),
    ),
    Target(
        "against the best peer",
        Of("W14", "pipelines_per_second_1"),
        at_least=1.5,
        against=_peers("W14", "pipelines_per_second_1"),
    ),
    Target("to the first line, median", Of("W15", "begun_p50_ms"), at_most=8, unit="ms"),
    Target("behind the third node, median", Of("W15", "ended_p50_ms"), at_most=30, unit="ms"),
    Target("jobs of a stage", Of("W16"), at_least=3_000, unit="jobs/s"),
    Target(
        "a write beside an open transaction, 99th percentile",
        Of("W17", "wait_p99_beside_ms"),
        at_most=50,
        unit="ms",
    ),
    Target(
        "the longest wait for a write beside it",
        Of("W17", "wait_most_beside_ms"),
        at_most=50,
        unit="ms",
    ),
    Target("messages that come through meanwhile", Of("W17", "share"), at_least=0.9),
    *(
        Target(f"{which} with the app of flows against without", Of("W18", name), at_least=0.98)
        for which, name in (
            ("W1", "share_enqueue"),
            ("W3", "share_drain"),
            ("W8", "share_throttled"),
        )
    ),
    Target("enqueue of a task against a job type's", Of("W20", "share"), at_least=0.95),
    Target("the same with pydantic", Of("W20", "typed_share"), at_least=0.7),
    Target("drain of tasks against a job type's", Of("W20", "drain_share"), at_least=0.95),
    Target("median", Of("W21", "p50_ms"), at_most=30, unit="ms"),
    Target("99th percentile", Of("W21", "p99_ms"), at_most=1_100, unit="ms"),
    Target(
        "one worker: 10,000 in 5 s", Of("W22", "schedules_per_second_1"), at_least=2_000, unit="/s"
    ),
    Target(
        "two workers: 10,000 in 3 s", Of("W22", "schedules_per_second_2"), at_least=3_333, unit="/s"
    ),
    Target("a look at none", Of("W22", "look_ms"), at_most=1, unit="ms"),
    Target("step of a chain", Of("W23", "step_p50_ms"), at_most=15, unit="ms"),
    Target("members of a batch against `enqueue_many`", Of("W23", "share"), at_least=0.8),
    Target("call back", Of("W23", "callback_ms"), at_most=200, unit="ms"),
    Target("a look at 1,000 that one waits for", Of("W23", "look_ms"), at_most=20, unit="ms"),
    Target("end of the last of 1,000", Of("W23", "release_ms"), at_most=20, unit="ms"),
    Target("enqueue against `hipq.enqueue`", Of("W24", "share"), at_least=0.85),
    Target(
        "enqueue against django-tasks-db",
        Of("W24", "enqueues_per_second"),
        at_least=1.3,
        against=(Of("W24", "enqueues_per_second", "django_tasks_db"),),
    ),
    Target("drain against a job type's", Of("W24", "drain_share"), at_least=0.9),
    Target(
        "drain against django-tasks-db",
        Of("W24", "drain_per_second"),
        at_least=50,
        against=(Of("W24", "drain_per_second", "django_tasks_db"),),
    ),
    Target("`get_result` of a success", Of("W24", "result_queries"), at_most=1, unit="query"),
    Target("of a failure", Of("W24", "failure_queries"), at_most=2, unit="queries"),
    Target("a job", Of("W25", "job_ms", SQLITE), at_most=3, unit="ms"),
    Target("30 days", Of("W25", "days_seconds", SQLITE), at_most=2, unit="s"),
    Target("the client, for a job", Of("W27", "client_us"), at_most=10, unit="µs"),
    Target("the server, for a job of four shards", Of("W28", "server_share"), at_most=1.1),
    Target("enqueue with a `shard_key`", Of("W28", "enqueue_share"), at_least=0.95),
    Target("used room, all jobs in one shard", Of("W28", "room_share"), at_least=0.9),
    Target("idle worker", Of("W28", "idle_core_percent"), at_most=1, unit="% of a core"),
    Target(
        "throughput, last quarter against the second",
        Of(SOAK, "throughput_late"),
        at_least=0.95,
        against=(Of(SOAK, "throughput_early"),),
    ),
    Target(
        "table and indexes, last quarter against the second",
        Of(SOAK, "megabytes_late"),
        at_most=1.1,
        against=(Of(SOAK, "megabytes_early"),),
    ),
    Target(
        "jobs waiting, last quarter", Of(SOAK, "seconds_behind"), at_most=1, unit="s of enqueuing"
    ),
    Target(
        "throughput while a transaction is held against before",
        Of(SOAK_HELD, "throughput_held"),
        at_least=0.5,
        against=(Of(SOAK_HELD, "throughput_before"),),
    ),
    Target(
        "throughput after it against before",
        Of(SOAK_HELD, "throughput_after"),
        at_least=0.95,
        against=(Of(SOAK_HELD, "throughput_before"),),
    ),
    Target(
        "jobs waiting after it, last quarter",
        Of(SOAK_HELD, "seconds_behind"),
        at_most=1,
        unit="s of enqueuing",
    ),
)

LEAD_WORKLOADS = (
    *("W1", "W2", "W3", "W3b", "W3c", "W4", "W4b", "W4c", "W5", "W7"),
    *("W12", "W13", "W14", "W21", "W22", "W23", "W24"),
)
"""Where it is said which peers are ahead, on whatever store."""


def verdicts(results: Results) -> list[Verdict]:
    """Return what was reached of each target, in the order of the workloads."""
    return [Verdict(target, _reached(target, results)) for target in TARGETS]


def _reached(target: Target, results: Results) -> float | None:
    found = _values(target.of, results)
    if not target.against:
        return median(found) if found else None
    measures = zip_longest(*(_values(of, results) for of in target.against), fillvalue=0.0)
    return ratio(found, [max(measured) for measured in measures])


def _values(of: Of, results: Results) -> list[float]:
    source = next((w.taken_from for w in WORKLOADS if w.id == of.workload), "")
    return values(results, source or of.workload, of.system, of.figure)


def leads(results: Results, systems: Sequence[System]) -> list[str]:
    """Return a sentence for each figure in which peers are ahead.

    Behind a peer stands what share of its performance hipq_django has.
    """
    found = []
    for name in LEAD_WORKLOADS:
        workload = by_id(name)
        shown = rows(results, workload, systems)
        ours = next((row for row in shown if row.system.is_ours), None)
        if ours is None:
            continue
        for index, figure in enumerate(workload.figures):
            ratios = [
                (row.system.title, better(figure, ours.spreads[index], row.spreads[index]))
                for row in shown
                if row.system.is_peer
            ]
            ahead = [f"{title} ({ratio:.2g})" for title, ratio in ratios if ratio and ratio < 1]
            if ahead:
                found.append(f"{name}, {figure.title}: {', '.join(ahead)}.")
    return found
