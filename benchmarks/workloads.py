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
        "One client enqueues 2,000 jobs, each committed before the next. For hipq_django also the "
        "bare `Job.objects.create` of the same row: the rest is the price of `enqueue` itself.",
        "enqueue",
        {"jobs": 2_000, "warm_up": 200},
        {"jobs": 100, "warm_up": 10},
        (RATE, rate("bare_creates_per_second", "bare `create`", "rows/s")),
    ),
    Workload(
        "W2",
        "Enqueue in bulk",
        "One client enqueues 20,000 jobs by the system's own call for many jobs. Systems without "
        "such a call are not shown.",
        "bulk",
        {"jobs": 20_000, "warm_up": 1_000},
        {"jobs": 500, "warm_up": 10},
        (RATE,),
    ),
    Workload(
        "W3",
        "Drain, one worker",
        "One worker does 20,000 jobs that do nothing and were all there before it started. The "
        "time runs from its first job until all jobs are recorded as done.",
        "drain",
        {"jobs": 20_000, "workers": 1},
        {"jobs": 2_000, "workers": 1},
        (RATE,),
        slow={"jobs": 3_000},
    ),
    Workload(
        "W3b",
        "Jobs that raise and are given up",
        "One worker does 10,000 jobs that do nothing, then 20,000 whose handler raises, then "
        "10,000 that do nothing, in the same minute. Each failure is recorded with its error, "
        "where the system records any.",
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
        "The same with jobs that are tried again at once, three times in all; each time counts.",
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
        "Three workers do 5,000 jobs that do nothing, from a queue without a limit, from one with "
        "limit 100 and from one with a limit for each of 100 tenants, while all that workers and "
        "PostgreSQL send each other takes 0.2 s each way.",
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
        "W3 with two workers and 40,000 jobs, from the moment when both have begun.",
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
        "Each handler asks a server on the same machine that takes 20 ms to answer. One worker, "
        "as many jobs at a time as the column says "
        "(threads, or tasks of one thread where a system is built on asyncio).",
        "network",
        {"jobs_each": 100, "workers": 1, "concurrency": CONCURRENCY},
        {"jobs_each": 5, "workers": 1, "concurrency": (8, 32)},
        tuple(rate(f"jobs_per_second_at_{n}", f"{n} at a time") for n in CONCURRENCY),
        charted="jobs_per_second_at_100",
    ),
    Workload(
        "W4c",
        "Handlers that wait on the network, two workers",
        "The same with two worker processes, each with as many jobs at a time as the column says.",
        "network",
        {"jobs_each": 200, "workers": 2, "concurrency": CONCURRENCY},
        {"jobs_each": 10, "workers": 2, "concurrency": (8, 32)},
        tuple(rate(f"jobs_per_second_at_{n}", f"2 times {n} at a time") for n in CONCURRENCY),
        charted="jobs_per_second_at_100",
    ),
    Workload(
        "W5",
        "Latency of an idle worker",
        "From the enqueue's commit to the first line of the handler; one job every 100 ms, 200 "
        "jobs, to a worker that has nothing else to do. Idle is what the worker, its child "
        "processes and their sessions in PostgreSQL (not Redis) then use of a core while nothing "
        "is enqueued for 10 s. Peers that poll are set to do it every 10 ms, which buys latency "
        "with idle work; hipq_django is as shipped.",
        "latency",
        {"jobs": 200, "pause_seconds": 0.1, "idle_seconds": 10},
        {"jobs": 10, "pause_seconds": 0.1, "idle_seconds": 1},
        DELAYS,
    ),
    Workload(
        "W5b",
        "Many clients, with and without wake-ups",
        "16 client processes enqueue as fast as they can, and a worker listens that takes none of "
        "the jobs. Whether to wake workers at a commit is the setting `NOTIFY`.",
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
        "W5 on databases that wake nobody: SQLite, and PostgreSQL with the setting `NOTIFY` off.",
        "polling",
        {"jobs": 200, "pause_seconds": 0.1, "idle_seconds": 10},
        {"jobs": 10, "pause_seconds": 0.1, "idle_seconds": 1},
        DELAYS,
    ),
    Workload(
        "W5d",
        "Latency beside a storm of failures",
        "From the enqueue's commit to the first line of the handler, as in W5, while the same "
        "worker is at 150,000 jobs of another queue that all raise.",
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
        "W3 again, while 1,000,000 jobs scheduled for the future and 1,000,000 finished jobs are "
        "in the table and in the same queue.",
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
        "Taken during W3: the peak resident memory of the worker with its child processes (pages "
        "that processes share count for each), and what PostgreSQL counted as transactions.",
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
        "Taken while the table of W6 is filled, in the first round only: one worker does 1,000,000 "
        "jobs without a break. Memory is taken when a fifth is done and at the end.",
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
        "Jobs of weights 1 to 3 in a queue with limit 100, against the same jobs in a queue "
        "without a limit. No peer has such a limit. All the while another session asks the "
        "database for the sum of the weights that run; the greatest that it ever saw is shown.",
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
        "100,000 jobs wait for their answer; 10,000 are answered on each way, each answer in a "
        "transaction of its own: by `complete` of one client and of four threads; by callbacks "
        "that are handed to Django's WSGI application, without a server in front of it, by one "
        "and by four threads. Then a consumer takes 10,000 from Kafka (librdkafka's own test "
        "cluster), and the others come by `receive_many`, 500 at a time.",
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
        "W3 again, with the jobs spread over 200 queues, and in one queue for 10,000 tenants of "
        "which each may run five jobs at a time (`KeyLimit`).",
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
        "Limit 10, four workers, 400 jobs of weights 1 to 3 that take 0.25 s: the share of the "
        "time in which the next job did not fit, and the greatest sum of weights ever in flight.",
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
        "W3 with a SQLite file instead of a server.",
        "drain",
        {"jobs": 20_000, "workers": 1},
        {"jobs": 2_000, "workers": 1},
        (RATE,),
    ),
    Workload(
        "W13",
        "Many messages through one pipeline",
        "20,000 messages go through three steps, one after the other, by one worker. In "
        "hipq_django they are three connected nodes, and at the end all messages lie on the port "
        "of the last one, in their order. In the others each message is a workflow of three steps, "
        "a task that defers another one, or a chain, without an order among them.",
        "flow_messages",
        {"messages": 20_000},
        {"messages": 500},
        (rate("messages_per_second", "messages per second", ""),),
        slow={"messages": 3_000},
    ),
    Workload(
        "W14",
        "Many pipelines",
        "5,000 pipelines of three steps, with one message each, by one worker and by two. In "
        "hipq_django they are 15,000 nodes, of which each is run once.",
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
        "One message every 100 ms to a pipeline of three nodes whose worker has nothing else to "
        "do: from the commit of the write to the first line of the first node's code, and until "
        "another process finds the message behind the third node.",
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
        "20,000 messages lie before a stage of a graph, which makes a job of each, at most 1,000 "
        "at a time, and hands their results on; by one worker, until all of them lie behind it.",
        "flow_stage",
        {"jobs": 20_000, "limit": 1_000},
        {"jobs": 500, "limit": 200},
        (RATE,),
    ),
    Workload(
        "W17",
        "A writer that does not commit",
        "16 processes write to one port, each a message every 200 ms for 10 s; then again, beside "
        "another one that has written and keeps its transaction open all the while. Each has "
        "written before, so that it has its connection.",
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
        "W1, W3 and W8 of one worker, with the app of flows installed and without it, in turns.",
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
        "One client enqueues 3,000 jobs of a type with a handler for the whole job, 3,000 of a "
        "task with its arguments, and 3,000 of a task whose arguments pydantic checks, in turns "
        "of 500. Then one worker drains 20,000 jobs of the type and 20,000 of the task, and again "
        "in the other order. No peer stands beside it: none has both, and what plain functions "
        "cost there is W1 and W3.",
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
        "then, in a worker that has nothing else to do. Celery and dj_queue do not tell a job when "
        "it was due: there it is the second in which it began, and a second without a job counts "
        "until the next one.",
        "ticks",
        {"seconds": 60},
        {"seconds": 5},
        DELAYS[:2],
    ),
    Workload(
        "W22",
        "Many schedules",
        "10,000 schedules are due at the same moment: how fast one worker, and two, make their "
        "jobs, while the same workers run them. And what a look costs while none is due. Peers "
        "are given 1,000, because they take long for each; those are shown that take schedules by "
        "the thousand and say when they made a job, which Celery's beat does not.",
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
        "A chain of 200 steps in an idle worker: from the beginning of a step to that of the next. "
        "A batch of 100,000 jobs: the rate of enqueuing against that of `enqueue_many`, and from "
        "the end of the last to the beginning of the job that it calls back. A job that waits for "
        "1,000 others: what it takes to see, when one has ended, whether it may go on, and what "
        "the end of the last one takes, which lets it go on. Of peers a chain is measured: "
        "Celery's own, and in Procrastinate each task defers the next. Where "
        "peers call back after many jobs, it is by a store of results, which is off here.",
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
        "The tasks of `django.tasks` (Django 6, or on 5.2 its backport) by a backend. One client "
        "enqueues 3,000, and one worker drains 20,000. For hipq_django also against jobs of its "
        "own, enqueued in turns of 500 and drained in both orders, and what `get_result` asks the "
        "database.",
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
        "What a project's tests wait for, in one transaction as in a `TestCase`: "
        "`testing.run_due_jobs` with 1,000 jobs that do nothing, and `testing.run_for` over 30 "
        "days in which a schedule fires each hour.",
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
        "What costs more the more there is of something, and has a bound. A worker that idles "
        "beside 100,000 jobs which a throttler holds: its share of a core, its sessions in "
        "PostgreSQL included, and what the database writes to its log. The search for jobs with "
        "the rank of a former order, among 100,000. The search for answers that have missed their "
        "job, among 50,000 early ones. What a claim reads and writes of a `RateLimit` with 99,000 "
        "starts. A job that runs, fails and is decided after 100,000 attempts.",
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
)


def by_id(name: str) -> Workload:
    """Return the workload of this id; raise `KeyError`."""
    return {workload.id: workload for workload in WORKLOADS}[name]
