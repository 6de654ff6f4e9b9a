"""The workloads, as data: what each runs, how large it is, and what its figures are called."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.systems import System

Sizes = dict[str, Any]


@dataclass(frozen=True)
class Figure:
    """A kind of figure that a workload yields; `unit` stands behind the number."""

    name: str
    title: str
    unit: str
    more_is_better: bool = True
    decimals: int = 0


@dataclass(frozen=True)
class Workload:
    """One workload. `measurement` is what a runner is asked for, with `sizes`, or `quick` ones.

    `slow` are those of the sizes that differ for slow systems. `figures` are those shown, and the
    one named `charted`, else the first, is drawn. `limit_seconds` ends a run that hangs. With
    `keeps_database` the rounds of a system share one database. `taken_from` names the workload
    that yields the figures where it is another one, and `beside` the one with which the figures are
    compared: a system runs both in the same minute.
    """

    id: str
    title: str
    meaning: str
    measurement: str
    sizes: Sizes
    quick: Sizes
    figures: tuple[Figure, ...]
    limit_seconds: int = 600
    keeps_database: bool = False
    taken_from: str = ""
    beside: str = ""
    charted: str = ""
    quick_limit_seconds: int = 120
    slow: Sizes = field(default_factory=dict)

    def sizes_of(self, system: System, *, quick: bool) -> Sizes:
        """Return the sizes with which this system is measured."""
        if quick:
            return self.quick
        return {**self.sizes, **self.fewer_of(system)}

    def fewer_of(self, system: System) -> Sizes:
        """Return those of the sizes that differ for this system."""
        return {**(self.slow if system.is_slow else {}), **system.sizes.get(self.id, {})}


RATE = Figure("jobs_per_second", "jobs per second", "")
CONCURRENCY = (8, 32, 100)


DELAYS = (
    Figure("p50_ms", "median", "ms", more_is_better=False, decimals=1),
    Figure("p99_ms", "99th percentile", "ms", more_is_better=False, decimals=1),
    Figure("idle_core_percent", "idle", "% of a core", more_is_better=False, decimals=2),
)


STORM = (
    Figure("attempts_per_second", "attempts per second", ""),
    Figure("share", "of the rate of jobs that succeed", "", decimals=2),
    Figure("storm_memory_mb", "peak memory", "MB", more_is_better=False),
)


def rate(name: str, title: str, unit: str = "jobs/s") -> Figure:
    """Return a rate that is not the plain one."""
    return Figure(name, title, unit)


WORKLOADS = (
    Workload(
        "W1",
        "Enqueue one by one",
        "One client enqueues 2,000 jobs, each committed before the next; beside it the bare "
        "`Job.objects.create` of the same row.",
        "enqueue",
        {"jobs": 2_000, "warm_up": 200},
        {"jobs": 100, "warm_up": 10},
        (RATE, rate("bare_creates_per_second", "bare `create`", "rows/s")),
    ),
    Workload(
        "W2",
        "Enqueue in bulk",
        "20,000 jobs by the system's own call for many jobs, where it has one.",
        "bulk",
        {"jobs": 20_000, "warm_up": 1_000},
        {"jobs": 500, "warm_up": 10},
        (RATE,),
    ),
    Workload(
        "W3",
        "Drain, one worker",
        "One worker does 20,000 jobs that do nothing and were there before it started, until "
        "all are recorded as done.",
        "drain",
        {"jobs": 20_000, "workers": 1},
        {"jobs": 2_000, "workers": 1},
        (RATE,),
        slow={"jobs": 3_000},
    ),
    Workload(
        "W3b",
        "Jobs that raise and are given up",
        "One worker does 10,000 jobs that do nothing, 20,000 that raise, and 10,000 that do "
        "nothing.",
        "storm",
        {"jobs": 20_000, "kind": "raise", "tries": 1},
        {"jobs": 2_000, "kind": "raise", "tries": 1},
        STORM,
        slow={"jobs": 3_000},
        charted="share",
    ),
    Workload(
        "W3c",
        "Jobs that raise and are tried three times at once",
        "The same with jobs that are tried three times at once; each time counts.",
        "storm",
        {"jobs": 20_000, "kind": "raise_thrice", "tries": 3},
        {"jobs": 2_000, "kind": "raise_thrice", "tries": 3},
        STORM,
        slow={"jobs": 3_000},
        charted="share",
    ),
    Workload(
        "W3d",
        "Drain far from the database",
        "Three workers do 5,000 jobs from a queue without a limit, with limit 100, and with a "
        "limit for each of 100 tenants, 0.2 s each way from PostgreSQL.",
        "far",
        {"jobs": 5_000, "workers": 3, "seconds_each_way": 0.2},
        {"jobs": 200, "workers": 3, "seconds_each_way": 0.02},
        (
            rate("jobs_per_second", "no limit"),
            rate("jobs_per_second_limited", "limit 100"),
            rate("jobs_per_second_many_keys", "100 tenants"),
        ),
    ),
    Workload(
        "W4",
        "Drain, two workers",
        "W3 with two workers and 40,000 jobs.",
        "drain",
        {"jobs": 40_000, "workers": 2},
        {"jobs": 2_000, "workers": 2},
        (RATE,),
        slow={"jobs": 6_000},
        beside="W3",
    ),
    Workload(
        "W4b",
        "Handlers that wait on the network",
        "Each handler asks a server that takes 20 ms to answer; one worker, so many jobs at a "
        "time.",
        "network",
        {"jobs_each": 100, "workers": 1, "concurrency": CONCURRENCY},
        {"jobs_each": 5, "workers": 1, "concurrency": (8, 32)},
        tuple(rate(f"jobs_per_second_at_{n}", f"{n} at a time") for n in CONCURRENCY),
        charted="jobs_per_second_at_100",
    ),
    Workload(
        "W4c",
        "Handlers that wait on the network, two workers",
        "The same with two workers.",
        "network",
        {"jobs_each": 200, "workers": 2, "concurrency": CONCURRENCY},
        {"jobs_each": 10, "workers": 2, "concurrency": (8, 32)},
        tuple(rate(f"jobs_per_second_at_{n}", f"2 times {n} at a time") for n in CONCURRENCY),
        charted="jobs_per_second_at_100",
    ),
    Workload(
        "W5",
        "Latency of an idle worker",
        "From the enqueue's commit to the first line of the handler, one job every 100 ms; and "
        "what worker and sessions use of a core while nothing is enqueued. Peers that poll do "
        "it every 10 ms.",
        "latency",
        {"jobs": 200, "pause_seconds": 0.1, "idle_seconds": 10},
        {"jobs": 10, "pause_seconds": 0.1, "idle_seconds": 1},
        DELAYS,
    ),
    Workload(
        "W5b",
        "Many clients, with and without wake-ups",
        "16 processes enqueue as fast as they can, with `NOTIFY` on and off.",
        "clients",
        {"clients": 16, "seconds": 4, "turns": 4},
        {"clients": 4, "seconds": 1, "turns": 1},
        (
            rate("commits_per_second", "without wake-ups", "commits/s"),
            rate("commits_per_second_with_notify", "with wake-ups", "commits/s"),
        ),
    ),
    Workload(
        "W5c",
        "Latency by polling alone",
        "W5 on databases that wake nobody.",
        "polling",
        {"jobs": 200, "pause_seconds": 0.1, "idle_seconds": 10},
        {"jobs": 10, "pause_seconds": 0.1, "idle_seconds": 1},
        DELAYS,
    ),
    Workload(
        "W5d",
        "Latency beside a storm of failures",
        "W5 while the same worker is at 150,000 jobs of another queue that all raise.",
        "storm_beside",
        {"failing": 150_000, "jobs": 100, "pause_seconds": 0.03},
        {"failing": 6_000, "jobs": 20, "pause_seconds": 0.01},
        (
            *DELAYS[:2],
            Figure("storm_memory_mb", "peak memory", "MB", more_is_better=False),
        ),
    ),
    Workload(
        "W6",
        "Drain with a large table",
        "W3 beside 1,000,000 scheduled and 1,000,000 finished jobs in the same queue.",
        "large_table",
        {"future": 1_000_000, "final": 1_000_000, "jobs": 20_000, "workers": 1},
        {"future": 2_000, "final": 2_000, "jobs": 2_000, "workers": 1},
        (RATE,),
        limit_seconds=1_800,
        keeps_database=True,
        beside="W3",
    ),
    Workload(
        "W7",
        "Memory and transactions",
        "During W3: peak resident memory of the worker with its child processes, and "
        "PostgreSQL's count of transactions.",
        "",
        {},
        {},
        (
            Figure("memory_mb", "peak memory", "MB", more_is_better=False),
            Figure(
                "transactions_per_job",
                "transactions per job",
                "",
                more_is_better=False,
                decimals=3,
            ),
        ),
        taken_from="W3",
    ),
    Workload(
        "W7b",
        "A million jobs",
        "One worker does 1,000,000 jobs without a break, in the first round only.",
        "",
        {},
        {},
        (
            Figure("million_memory_mb", "peak memory", "MB", more_is_better=False),
            Figure("million_memory_early_mb", "memory after a fifth", "MB", more_is_better=False),
            Figure("million_memory_at_end_mb", "memory at the end", "MB", more_is_better=False),
            rate("million_jobs_per_second", "all of them"),
        ),
        taken_from="W6",
    ),
    Workload(
        "W8",
        "Drain under a throttle limit",
        "Jobs of weights 1 to 3 in a queue with limit 100, against the same jobs without a "
        "limit; and the greatest sum that another session ever saw.",
        "throttled",
        {"jobs": 20_000, "workers": (1, 2)},
        {"jobs": 500, "workers": (1, 2)},
        (
            rate("jobs_per_second_1", "limit 100, one worker"),
            rate("unlimited_jobs_per_second_1", "no limit, one worker"),
            Figure("most_running_1", "greatest sum, of 100", "", more_is_better=False),
            rate("jobs_per_second_2", "limit 100, two workers"),
            rate("unlimited_jobs_per_second_2", "no limit, two workers"),
            Figure("most_running_2", "greatest sum, two workers", "", more_is_better=False),
        ),
    ),
    Workload(
        "W9",
        "Answers",
        "10,000 answers each way to 100,000 waiting jobs: by `complete` and by callbacks (WSGI,"
        " without a server), of one and of four threads; from Kafka; by `receive_many`.",
        "answers",
        {"waiting": 100_000, "share": 10_000, "threads": 4, "batch": 500},
        {"waiting": 3_600, "share": 600, "threads": 2, "batch": 50},
        (
            rate("answers_per_second", "one by one", "answers/s"),
            rate("answers_per_second_threads", "one by one, four threads", "answers/s"),
            rate("callbacks_per_second", "callbacks", "answers/s"),
            rate("callbacks_per_second_threads", "callbacks, four threads", "answers/s"),
            rate("answers_per_second_from_kafka", "from Kafka", "answers/s"),
            rate("answers_per_second_in_batches", "500 at a time", "answers/s"),
        ),
        limit_seconds=1_200,
    ),
    Workload(
        "W10",
        "Many queues, many keys",
        "W3 over 200 queues, and in one queue with a `KeyLimit` for 10,000 tenants.",
        "many",
        {"jobs": 20_000, "queues": 200, "tenants": 10_000},
        {"jobs": 500, "queues": 20, "tenants": 100},
        (
            rate("jobs_per_second_one_queue", "one queue"),
            rate("jobs_per_second_many_queues", "200 queues"),
            rate("jobs_per_second_many_keys", "10,000 tenants"),
        ),
    ),
    Workload(
        "W11",
        "A queue kept at its limit",
        "Limit 10, four workers, jobs of 0.25 s: the share of the time in which the next job "
        "did not fit, and the greatest sum in flight.",
        "share",
        {"jobs": 400, "seconds": 0.25, "workers": 4},
        {"jobs": 60, "seconds": 0.1, "workers": 4},
        (
            Figure("share", "share of the time at the limit", "", decimals=3),
            Figure("most", "most in flight, of 10", "", more_is_better=False),
        ),
    ),
    Workload(
        "W12",
        "Drain on SQLite",
        "W3 with an SQLite file.",
        "drain",
        {"jobs": 20_000, "workers": 1},
        {"jobs": 2_000, "workers": 1},
        (RATE,),
    ),
    Workload(
        "W13",
        "Many messages through one pipeline",
        "20,000 messages through three steps by one worker: in hipq_django three nodes, which "
        "keep the order; in the others 20,000 workflows or chains.",
        "flow_messages",
        {"messages": 20_000},
        {"messages": 500},
        (rate("messages_per_second", "messages per second", ""),),
        slow={"messages": 3_000},
    ),
    Workload(
        "W14",
        "Many pipelines",
        "5,000 pipelines of three steps with one message each; in hipq_django 15,000 nodes.",
        "flow_pipelines",
        {"pipelines": 5_000, "workers": (1, 2)},
        {"pipelines": 30, "workers": (1, 2)},
        (
            rate("pipelines_per_second_1", "one worker", "pipelines/s"),
            rate("steps_per_second_1", "one worker", "steps/s"),
            rate("pipelines_per_second_2", "two workers", "pipelines/s"),
            rate("steps_per_second_2", "two workers", "steps/s"),
        ),
        limit_seconds=1_200,
        quick_limit_seconds=300,
        slow={"pipelines": 1_000},
    ),
    Workload(
        "W15",
        "Latency of a flow",
        "From the commit of a message to the first line of the first of three nodes, and until "
        "it lies behind the third.",
        "flow_latency",
        {"messages": 200, "pause_seconds": 0.1},
        {"messages": 10, "pause_seconds": 0.05},
        (
            Figure("begun_p50_ms", "first line, median", "ms", False, 1),
            Figure("begun_p99_ms", "99th percentile", "ms", False, 1),
            Figure("ended_p50_ms", "behind the third, median", "ms", False, 1),
            Figure("ended_p99_ms", "99th percentile", "ms", False, 1),
        ),
    ),
    Workload(
        "W16",
        "A stage of jobs",
        "A stage makes a job of each of 20,000 messages, at most 1,000 at a time, and hands the"
        " results on.",
        "flow_stage",
        {"jobs": 20_000, "limit": 1_000},
        {"jobs": 500, "limit": 200},
        (RATE,),
    ),
    Workload(
        "W17",
        "A writer that does not commit",
        "16 processes write to one port, then again beside one that keeps its transaction open.",
        "flow_writers",
        {"writers": 16, "seconds": 10, "pause_seconds": 0.2},
        {"writers": 4, "seconds": 1, "pause_seconds": 0.2},
        (
            Figure("wait_p99_ms", "a write, 99th percentile", "ms", False, 1),
            Figure("wait_p99_beside_ms", "beside it", "ms", False, 1),
            Figure("wait_most_beside_ms", "longest beside it", "ms", False, 1),
            rate("messages_per_second", "come through", "messages/s"),
            Figure("share", "beside it, of that", "", decimals=2),
        ),
    ),
    Workload(
        "W18",
        "Jobs beside flows",
        "W1, W3 and W8 with the app of flows installed and without it.",
        "beside_flows",
        {
            "turns": 8,
            "enqueue": {"jobs": 2_000, "warm_up": 200},
            "drain": {"jobs": 150_000, "workers": 1},
            "throttled": {"jobs": 20_000, "workers": (1,)},
        },
        {
            "turns": 2,
            "enqueue": {"jobs": 100, "warm_up": 10},
            "drain": {"jobs": 2_000, "workers": 1},
            "throttled": {"jobs": 500, "workers": (1,)},
        },
        (
            Figure("share_enqueue", "W1", "", decimals=2),
            Figure("share_drain", "W3", "", decimals=2),
            Figure("share_throttled", "W8", "", decimals=2),
        ),
        limit_seconds=1_200,
    ),
    Workload(
        "W20",
        "Plain functions",
        "3,000 enqueues and 20,000 jobs of a job type, of a task, and of a task whose arguments"
        " pydantic checks.",
        "tasks",
        {"turns": 6, "jobs": 500, "drained": 20_000},
        {"turns": 2, "jobs": 50, "drained": 2_000},
        (
            rate("tasks_per_second", "enqueue of a task"),
            Figure("share", "of a job type's", "", decimals=2),
            Figure("typed_share", "with pydantic", "", decimals=2),
            rate("drain_per_second", "drain of tasks"),
            Figure("drain_share", "of the job type's", "", decimals=2),
        ),
    ),
    Workload(
        "W21",
        "A schedule that is due each second",
        "From each of 60 whole seconds to the first line of the handler of the job that is due "
        "then.",
        "ticks",
        {"seconds": 60},
        {"seconds": 5},
        DELAYS[:2],
    ),
    Workload(
        "W22",
        "Many schedules",
        "10,000 schedules (peers: 1,000) are due at once: how fast workers make and run their "
        "jobs; and the cost of a look while none is due.",
        "schedules",
        {"schedules": 10_000, "workers": (1, 2), "warm_up": 100, "looks": 200}
        | {"peer_schedules": 1_000, "peer_start_seconds": 20},
        {"schedules": 300, "workers": (1, 2), "warm_up": 20, "looks": 20}
        | {"peer_schedules": 100, "peer_start_seconds": 10},
        (
            rate("schedules_per_second_1", "one worker", "schedules/s"),
            rate("schedules_per_second_2", "two workers", "schedules/s"),
            Figure("look_ms", "a look at none", "ms", more_is_better=False, decimals=2),
        ),
    ),
    Workload(
        "W23",
        "Jobs that follow others",
        "A chain of 200 steps; a batch of 100,000 jobs and its callback; a job that waits for "
        "1,000 others.",
        "chains",
        {"steps": 200, "members": 100_000, "needs": 1_000, "looks": 50},
        {"steps": 10, "members": 1_000, "needs": 50, "looks": 5},
        (
            Figure("step_p50_ms", "step of a chain, median", "ms", False, 1),
            rate("members_per_second", "members of a batch"),
            Figure("share", "of `enqueue_many`", "", decimals=2),
            Figure("callback_ms", "call back", "ms", False, 0),
            Figure("look_ms", "a look at 1,000", "ms", False, 1),
            Figure("release_ms", "end of the last of 1,000", "ms", False, 1),
        ),
    ),
    Workload(
        "W24",
        "Tasks of Django",
        "Tasks of `django.tasks`: 3,000 enqueues, 20,000 jobs by one worker, against jobs of "
        "our own, and the queries of `get_result`.",
        "django_tasks",
        {"turns": 6, "jobs": 500, "drained": 20_000, "results": 200},
        {"turns": 2, "jobs": 50, "drained": 1_000, "results": 20},
        (
            rate("enqueues_per_second", "enqueue"),
            rate("drain_per_second", "drain"),
            Figure("share", "enqueue, of `hipq.enqueue`", "", decimals=2),
            Figure("drain_share", "drain, of a job type's", "", decimals=2),
            Figure("result_queries", "`get_result`", "queries", False),
            Figure("failure_queries", "of a failure", "queries", False),
            Figure("result_ms", "`get_result`", "ms", False, 2),
        ),
        slow={"drained": 3_000},
    ),
    Workload(
        "W25",
        "The test kit",
        "In one transaction: `run_due_jobs` with 1,000 jobs, and `run_for` over 30 days with an"
        " hourly schedule.",
        "kit",
        {"warm_up": 100, "jobs": 1_000, "days": 30},
        {"warm_up": 10, "jobs": 50, "days": 1},
        (
            Figure("job_ms", "a job", "ms", False, 2),
            Figure("days_seconds", "30 days", "s", False, 1),
            Figure("fired", "jobs of the schedule", ""),
        ),
    ),
    Workload(
        "W26",
        "What grows",
        "What grows with the rows: an idle worker beside 100,000 held jobs; searches for old "
        "ranks among 100,000 and for early answers among 50,000; a `RateLimit` with 99,000 "
        "starts; a job after 100,000 attempts.",
        "growing",
        {
            "held": 100_000,
            "settle_seconds": 20,
            "idle_seconds": 10,
            "waiting": 100_000,
            "early": 50_000,
            "starts": 99_000,
            "attempts": 100_000,
            "turns": 20,
        },
        {
            "held": 1_000,
            "settle_seconds": 1,
            "idle_seconds": 1,
            "waiting": 1_000,
            "early": 1_000,
            "starts": 99_000,
            "attempts": 1_000,
            "turns": 5,
        },
        (
            Figure("held_core_percent", "beside held jobs", "% of a core", False, 1),
            Figure("held_wal_kb_per_second", "log", "kB/s", False, 1),
            Figure("order_ms", "former order", "ms", False, 1),
            Figure("early_ms", "early answers", "ms", False, 1),
            Figure("rate_limit_ms", "`RateLimit`", "ms", False, 2),
            Figure("rate_limit_kb", "its starts", "kB", False, 1),
            Figure("decision_ms", "decision", "ms", False, 1),
        ),
    ),
    Workload(
        "W27",
        "Prune",
        "`hipq_prune` deletes 60,000 ended jobs, then 60,000 with an attempt and an answer each: "
        "the time for each job, and the client's part of it.",
        "prune",
        {"warm_up": 2_000, "jobs": 60_000},
        {"warm_up": 100, "jobs": 2_000},
        (
            Figure("job_us", "a job", "µs", False, 1),
            Figure("client_us", "of it the client", "µs", False, 1),
            Figure("job_us_with_children", "with children", "µs", False, 1),
            Figure("client_us_with_children", "of it the client", "µs", False, 1),
        ),
    ),
    Workload(
        "W28",
        "Four shards",
        "Four databases of the server that are shards, in turn with one database: the server's "
        "processor for 4,000 jobs by four workers; 3,000 enqueues with a `shard_key`; the used "
        "part of a limit of 40, from the third second on, by 400 jobs of 1 s that are all in one "
        "shard; an idle worker.",
        "shards",
        {"drained": 4_000, "turns": 6, "jobs": 500, "limited": 400}
        | {"settle_seconds": 5, "idle_seconds": 20},
        {"drained": 400, "turns": 2, "jobs": 50, "limited": 160}
        | {"settle_seconds": 1, "idle_seconds": 2},
        (
            Figure("server_us", "server, a job", "µs", False, 0),
            Figure("server_share", "of one database's", "", False, 2),
            Figure("enqueue_share", "enqueue, of one database's", "", decimals=2),
            Figure("used_room", "used room", "", decimals=2),
            Figure("room_share", "of one database's", "", decimals=2),
            Figure("idle_core_percent", "idle", "% of a core", False, 2),
        ),
    ),
)


def by_id(name: str) -> Workload:
    """Return the workload of this id; raise `KeyError`."""
    return {workload.id: workload for workload in WORKLOADS}[name]
