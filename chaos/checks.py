"""The checks: each takes the evidence of a cell and returns what it found wrong. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chaos.figures import idle_seconds, recovery_seconds, waits
from chaos.project.limits import PER_TENANT, RATE
from chaos.run import THREADS
from hipq_django.domain.retries import MAX_LOSSES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from chaos.evidence import Evidence, JobRow
    from chaos.ledger import Event

SLACK = 0.5
"""By how many seconds what processes write about the same moment may differ, on a busy machine.

A worker may start a job whose claim it knew to hold 0.1 s before; the rest is for a process that
has to wait for a core between two steps.
"""
LATE = 0.1
"""By how many seconds a handler may write late that it began, on a machine whose cores are busy.

A start is never counted before it happens, so nothing else makes a window seem shorter.
"""
WAKING = 0.5
"""So long after its process was resumed, a thread may end the step in which it was stopped."""


@dataclass(frozen=True)
class Rule:
    """A check, and what its column in the report is called."""

    name: str
    title: str
    meaning: str
    check: Callable[[Evidence], Iterable[str]]


# Jobs


def lost(evidence: Evidence) -> Iterator[str]:
    """Acknowledged jobs that are not there, rolled back ones that are, successes without effect."""
    rows = Counter(row.key for row in evidence.jobs)
    acknowledged = {event.key for event in evidence.named("enqueued")}
    for key, order in evidence.orders.items():
        if order.is_rolled_back and rows[key]:
            yield f"{key}: its transaction was rolled back, and the job is there"
        elif key in acknowledged and not order.is_rolled_back and rows[key] != 1:
            yield f"{key}: acknowledged, and there are {rows[key]} such jobs"
    for row in evidence.jobs:
        is_receipt = row.key in evidence.orders and evidence.orders[row.key].job_type == "receipt"
        if is_receipt and row.outcome == "succeeded" and row.key not in evidence.receipts:
            yield f"{row.key}: succeeded, and what its handler wrote is not there"


def stuck(evidence: Evidence) -> Iterator[str]:
    """Jobs that are not final though everything had time to settle."""
    for row in evidence.jobs:
        if row.state != "final" and not evidence.orders[row.key].waits:
            yield f"{row.key}: {row.state} in attempt {row.attempt}"


def ended_twice(evidence: Evidence) -> Iterator[str]:
    """Jobs that ended more than once, otherwise than was said, or by an attempt that is over."""
    for row in evidence.jobs:
        ends = [event.more["outcome"] for event in evidence.of(row.key, "finished")]
        if len(ends) > 1:
            yield f"{row.key}: {len(ends)} ends: {', '.join(ends)}"
        elif ends and ends[0] != row.outcome:
            yield f"{row.key}: ended as {ends[0]}, and is {row.outcome or 'live'} now"
        if _attempt_of_result(row) not in (None, row.attempt):
            yield f"{row.key}: attempt {row.attempt} has the result of {_attempt_of_result(row)}"


def _attempt_of_result(row: JobRow) -> object:
    return row.result.get("attempt") if isinstance(row.result, dict) else None


def wrong_outcome(evidence: Evidence) -> Iterator[str]:
    """Jobs that ended as they should not: innocent ones that failed, cancels that did not hold."""
    for row in evidence.jobs:
        order = evidence.orders[row.key]
        allowed = set(order.ends)
        if order.job_type == "never" and evidence.bounds.may_lose:
            allowed.add("failed")
        if evidence.of(row.key, "cancelled"):
            allowed = {"cancelled"}
        if _was_killed_too_often(row.key, evidence):
            allowed.add("failed")
        if row.state == "final" and row.outcome not in allowed:
            yield f"{row.key}: {row.outcome}, not {' or '.join(sorted(allowed))}"


def _was_killed_too_often(key: str, evidence: Evidence) -> bool:
    """Whether so many workers were killed in a row with this job in flight that it may do it."""
    ended = {event.attempt for event in evidence.of(key, "end")}
    begun = [event for event in evidence.of(key, "begin") if event.attempt not in ended]
    return sum(event.pid in evidence.killed for event in begun) >= MAX_LOSSES


# Starts


def started_after_end(evidence: Evidence) -> Iterator[str]:
    """Handlers that began when their job was over, its queue paused, or their worker given up."""
    guilty = [event for event in evidence.named("begin") if _must_not_start(event, evidence)]
    for event in _without_waking(guilty, evidence):
        yield f"{event.key}: attempt {event.attempt} began in process {event.pid}"


def _must_not_start(event: Event, evidence: Evidence) -> bool:
    limit = event.at - SLACK
    ends = evidence.of(event.key, "finished", "cancelled", "answered")
    if any(end.at < limit and end.more.get("status", "") in ENDING for end in ends):
        return True
    if _was_given_up(event, evidence):
        return True
    if evidence.orders[event.key].job_type != "pausing":
        return False
    turns = [turn for turn in evidence.turns if turn.at < event.at]
    return bool(turns) and turns[-1].what == "paused" and turns[-1].at < limit


def _was_given_up(event: Event, evidence: Evidence) -> bool:
    """Whether the worker had been given up when it began, and was not back as a new one."""
    return any(
        given_up + SLACK < event.at < back - SLACK
        for given_up, back in evidence.given_up.get(event.pid, ())
    )


ENDING = ("", "accepted", "early")
"""The statuses of answers that spare the request; what is no answer has none."""


def _without_waking(events: Iterable[Event], evidence: Evidence) -> Iterator[Event]:
    """Leave out what threads of a process did in the moment in which it was resumed.

    No program can know that it was stopped between two instructions. That excuses the step that
    each thread was in, and not a second one.
    """
    wakings = [(event.more["worker"], event.at) for event in evidence.named("waking")]
    excused: Counter[tuple[int, float]] = Counter()
    for event in events:
        waking = next(
            (w for w in wakings if w[0] == event.pid and 0 <= event.at - w[1] < WAKING), None
        )
        if waking is not None and excused[waking] < THREADS:
            excused[waking] += 1
        else:
            yield event


def too_early(evidence: Evidence) -> Iterator[str]:
    """Handlers that began, and attempts that timed out, before their time."""
    due = {event.key: event.more["due"] for event in evidence.named("planned")}
    for event in evidence.named("begin"):
        if event.at < due[event.key] - SLACK:
            yield f"{event.key}: began {due[event.key] - event.at:.1f} s before its time"
    for row in evidence.timeouts:
        timeout = evidence.orders[row.key].timeout
        begun = evidence.begun.get((row.key, row.attempt), row.ended)
        lasted = row.ended - (begun if begun < row.ended else due[row.key])
        if lasted < timeout - SLACK:
            yield f"{row.key}: timed out after {lasted:.1f} of {timeout:g} s"


# Limits


def above_limit(evidence: Evidence) -> Iterator[str]:
    """Moments in which more ran than a limit allows: by the database, and by the handlers."""
    yield from evidence.above
    for tenant, runs in _runs_by_tenant(evidence).items():
        changes = sorted([(begin, 1) for begin, _ in runs] + [(end, -1) for _, end in runs])
        running = 0
        for at, change in changes:
            running += change
            if change > 0 and running > PER_TENANT.limit:
                yield f"tenant {tenant}: {running} handlers of {PER_TENANT.limit} at {at:.2f}"


def _runs_by_tenant(evidence: Evidence) -> dict[str, list[tuple[float, float]]]:
    """Return when handlers ran, of jobs that were run once only.

    A run that was given up, and goes on beside the next one, is not counted by the queue.
    """
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for key, order in evidence.orders.items():
        if order.job_type == "tenant":
            begins, ends = evidence.of(key, "begin"), evidence.of(key, "end")
            if len(begins) == len(ends) == 1:
                found[order.data["tenant"]].append((begins[0].at, ends[0].at))
    return found


def above_rate(evidence: Evidence) -> Iterator[str]:
    """Windows of a RateLimit in which more handlers began than it allows."""
    begins = [e for e in evidence.named("begin") if evidence.orders[e.key].job_type == "rated"]
    times = sorted(event.at for event in _without_waking(begins, evidence))
    for first, last in zip(times, times[RATE.count :], strict=False):
        if last - first < RATE.per - LATE:
            yield f"{RATE.count + 1} starts within {last - first:.2f} s"


# Answers


def wrong_answers(evidence: Evidence) -> Iterator[str]:
    """Acknowledged answers that are not there, or not once; jobs that do not have what they say."""
    stored = Counter(row.message for row in evidence.answers)
    for event in evidence.named("answered"):
        if stored[event.more["message"]] != 1:
            count = stored[event.more["message"]]
            yield f"{event.more['message']}: acknowledged, and stored {count} times"
    accepted: dict[str, list[object]] = defaultdict(list)
    for row in evidence.answers:
        if row.kind == "response" and row.status == "accepted":
            accepted[row.key].append(row.payload)
    for key, payloads in accepted.items():
        yield from _wrongly_answered(key, payloads, evidence)


def _wrongly_answered(key: str, payloads: list[object], evidence: Evidence) -> Iterator[str]:
    row = evidence.row_of.get(key)
    if len(payloads) > 1:
        yield f"{key}: {len(payloads)} responses were accepted"
    elif row and row.outcome == "succeeded" and payloads[0] not in _said(row):
        yield f"{key}: its result is not the response that was accepted"
    elif row and row.outcome in ("failed", "timed_out"):
        yield f"{key}: {row.outcome}, although a response was accepted"


def _said(row: JobRow) -> tuple[object, object]:
    checked = row.result.get("checked") if isinstance(row.result, dict) else None
    return row.result, checked


# Workers


def bad_workers(evidence: Evidence) -> Iterator[str]:
    """Workers that died, do not beat, did not stop, or were given up though nothing hid them."""
    crew = evidence.crew
    if crew.beating != crew.expected:
        yield f"{crew.beating} of {crew.expected} workers beat at the end"
    for count, what in (
        (crew.stopped.died, "ended by itself"),
        (crew.stopped.killed, "had to be killed: SIGTERM, twice, did not end it"),
        (crew.stopped.failed, "did not end with exit code 0"),
        (0 if evidence.bounds.may_lose else crew.lost, "was given up though it lived"),
    ):
        yield from [f"a worker {what}"] * count


def unexpected_errors(evidence: Evidence) -> Iterator[str]:
    """Exceptions in the log that neither the jobs' code nor the database raised."""
    yield from evidence.logged


def too_slow(evidence: Evidence) -> Iterator[str]:
    """Waits, idle workers and recoveries that last longer than the fault explains."""
    bounds = evidence.bounds
    longest = max(waits(evidence), default=0.0)
    if bounds.longest_wait is not None and longest > bounds.longest_wait:
        yield f"a job waited {longest:.1f} s for its start, more than {bounds.longest_wait:g} s"
    if bounds.longest_idle is not None:
        for pid in evidence.crew.pids:
            if (idle := idle_seconds(pid, evidence)) > bounds.longest_idle:
                yield f"worker {pid} started nothing for {idle:.1f} s"
    recovery = recovery_seconds(evidence)
    if bounds.recovery is not None and recovery is not None and recovery > bounds.recovery:
        yield f"the first job started {recovery:.1f} s after the fault"


RULES = (
    Rule(
        "lost",
        "Lost",
        (
            "acknowledged jobs that do not exist, jobs of rolled-back transactions that do, "
            "successes without their own write"
        ),
        lost,
    ),
    Rule("stuck", "Stuck", "jobs that were not final at the end", stuck),
    Rule(
        "ended_twice",
        "Ended twice",
        "jobs that ended more than once, or have the result of an attempt that did not count",
        ended_twice,
    ),
    Rule(
        "above_limit", "Above limit", "moments in which more ran than a limit allows", above_limit
    ),
    Rule(
        "above_rate",
        "Above rate",
        "windows in which more handlers began than the `RateLimit` allows",
        above_rate,
    ),
    Rule(
        "started_after_end",
        "Started after the end",
        (
            "handlers that began half a second or more after their job was known to be final or "
            "answered, its queue paused, or the worker lost"
        ),
        started_after_end,
    ),
    Rule(
        "too_early",
        "Too early",
        "handlers that began, or attempts that timed out, before their time",
        too_early,
    ),
    Rule(
        "wrong_outcome",
        "Wrong end",
        "innocent jobs that failed, acknowledged cancels that did not hold",
        wrong_outcome,
    ),
    Rule(
        "wrong_answers",
        "Wrong answers",
        ("acknowledged answers that are not stored exactly once, jobs with two accepted responses"),
        wrong_answers,
    ),
    Rule(
        "bad_workers",
        "Workers",
        (
            "workers that died, did not beat, did not obey SIGTERM, or were declared lost without "
            "cause"
        ),
        bad_workers,
    ),
    Rule(
        "unexpected_errors",
        "Errors",
        "exceptions in the logs that neither jobs nor database raised",
        unexpected_errors,
    ),
    Rule("too_slow", "Too slow", "waits and recoveries longer than the fault explains", too_slow),
)


def check(evidence: Evidence) -> dict[str, list[str]]:
    """Return what each rule found, by its name; an empty list is what is wanted."""
    return {rule.name: list(rule.check(evidence)) for rule in RULES}
