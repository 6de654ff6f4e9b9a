"""The doctor's rules: measured values in, findings out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hipq_django.models.worker import Trouble
from hipq_django.monitoring.doctor import Finding, Level, diagnose
from hipq_django.monitoring.doctor.measurements import (
    Inbox,
    Measured,
    PostgreSQL,
    ScheduleState,
)
from hipq_django.monitoring.doctor.postgresql import notices_dead_peer
from hipq_django.monitoring.endings import Endings, Trend
from hipq_django.monitoring.overview import JobTypeEndings, Overview, ProcessState, QueueCounts

QUEUE = QueueCounts(
    name="bank",
    throttle_limit=10.0,
    order="time",
    paused=False,
    served=True,
    due=0,
    scheduled=0,
    running=0,
    awaiting_answer=0,
    in_error=0,
    load=0.0,
    oldest_due_seconds=0.0,
    problem="NONE",
)
WORKER = ProcessState("shop:7", "NONE", "running", ["bank"], [], 8, 2, 1.5, silent=False)
CONSUMER = ProcessState("shop:8", "bank_answers", "running", [], [], 1, 3, 1.5, silent=False)
WELL = Measured("default", "default", Overview("default", [QUEUE], [WORKER], [], 0, 0))


def in_queue(**values: Any) -> Measured:
    return replace(
        WELL, overview=Overview("default", [replace(QUEUE, **values)], [WORKER], [], 0, 0)
    )


FULL = {"due": 3, "load": 10.0, "awaiting_answer": 10, "oldest_due_seconds": 1_000.0}


def test_a_limit_that_is_full_without_an_answer_is_a_problem() -> None:
    [found] = diagnose(in_queue(**FULL, quiet_seconds=3_660.0))
    assert (found.level, found.code) == (Level.PROBLEM, "unanswered")
    assert "no job of it has ended for 1:01:00" in found.what
    assert [finding.code for finding in diagnose(in_queue(**FULL))] == ["unanswered"]


@pytest.mark.parametrize(("quiet", "hint"), [(30.0, "Raise the limit"), (3_600.0, "Ask the other")])
def test_a_limit_that_overdue_answers_fill_is_not_to_be_raised(quiet: float, hint: str) -> None:
    found = said(in_queue(**FULL | {"oldest_due_seconds": 90.0}, quiet_seconds=quiet))

    assert (found.code, found.what_to_do[: len(hint)]) == ("limit_reached", hint)


def test_a_throttler_that_holds_as_it_was_told_is_no_problem() -> None:
    overdue = in_queue(due=3, oldest_due_seconds=2_000.0)

    assert [finding.code for finding in diagnose(overdue)] == ["overdue"]
    assert diagnose(replace(overdue, held=frozenset({"bank"}))) == []


@pytest.mark.parametrize(
    ("lately", "level", "share"),
    [
        (Endings(succeeded=80, failed=20), Level.WARNING, "20%"),
        (Endings(succeeded=50, failed=50), Level.PROBLEM, "50%"),
    ],
)
def test_a_queue_that_fails_more_than_usual_is_told(
    lately: Endings, level: Level, share: str
) -> None:
    usually = Endings(succeeded=99, failed=1)
    trend = Trend(lately, usually)
    well = in_queue(trend=trend)
    assert well.overview is not None
    types = [
        JobTypeEndings("charge", "bank", Trend(Endings(failed=15), usually)),
        JobTypeEndings("refund", "bank", Trend(Endings(failed=5), usually)),
        JobTypeEndings("fine", "bank", Trend(Endings(succeeded=80), usually)),
        JobTypeEndings("other", "elsewhere", Trend(Endings(succeeded=80), usually)),
    ]
    told = replace(well, overview=replace(well.overview, job_types=types))

    [found] = diagnose(told)

    assert (found.level, found.code, found.where) == (level, "failing", "queue bank")
    assert found.what == (
        f"{lately.failed} of the last 100 jobs failed within an hour ({share}; 1% the day before): "
        "charge 15, refund 5."
    )


def test_a_job_type_is_told_where_its_queue_is_as_usual() -> None:
    usually = Endings(succeeded=400)
    lost = Trend(Endings(timed_out=31), Endings(succeeded=40))
    mixed = in_queue(trend=Trend(Endings(succeeded=320, timed_out=31), usually))
    assert mixed.overview is not None
    types = [JobTypeEndings("charge", "bank", lost), JobTypeEndings("fine", "bank", Trend())]

    [found] = diagnose(replace(mixed, overview=replace(mixed.overview, job_types=types)))

    assert (found.level, found.code) == (Level.PROBLEM, "timing_out")
    assert found.where == "job type charge"
    assert found.what == (
        "31 of the last 31 jobs timed out within an hour (100%; 0% the day before)."
    )


def test_a_queue_that_times_out_more_than_usual_is_told() -> None:
    trend = Trend(Endings(succeeded=10, timed_out=30), Endings(succeeded=100))

    [found] = diagnose(in_queue(trend=trend))

    assert (found.level, found.code) == (Level.PROBLEM, "timing_out")
    assert "30 of the last 40 jobs timed out" in found.what


def with_consumers(*consumers: ProcessState, awaiting: int = 0, **values: Any) -> Measured:
    queue = replace(QUEUE, awaiting_answer=awaiting)
    overview = Overview("default", [queue], [WORKER], list(consumers), 0, 0)
    return replace(WELL, overview=overview, **values)


def in_server(**values: Any) -> Measured:
    return replace(WELL, postgresql=PostgreSQL(**values))


def in_trouble(trouble: Trouble) -> Measured:
    worker = replace(WORKER, troubles=[trouble])
    return replace(WELL, overview=Overview("default", [], [worker], [], 0, 0))


SICK: dict[str, Measured] = {
    "missing_migrations problem": replace(WELL, missing_migrations=("hipq.0001_initial",)),
    "throttler_problem problem": in_queue(problem="throttler by_region raised KeyError", due=1),
    "no_worker problem": in_queue(served=False, due=1, oldest_due_seconds=2),
    "no_worker problem, an error": in_queue(served=False, in_error=1),
    "no_worker warning": in_queue(served=False, scheduled=1),
    "no_worker warning, it is running": in_queue(served=False, running=1),
    "threads_held problem": in_queue(served=False, held=True, due=27, oldest_due_seconds=60),
    "threads_held warning": in_trouble(Trouble("threads", 5, "1 of 8 threads held by jobs …")),
    "paused warning": in_queue(paused=True, due=1),
    "limit_reached warning": in_queue(due=1, oldest_due_seconds=60, load=10.0),
    "unanswered problem": in_queue(
        due=1, oldest_due_seconds=900, load=10.0, awaiting_answer=10, quiet_seconds=3_600.0
    ),
    "failing warning": in_queue(trend=Trend(Endings(succeeded=80, failed=20))),
    "failing problem": in_queue(trend=Trend(Endings(failed=20))),
    "timing_out warning": in_queue(trend=Trend(Endings(succeeded=80, timed_out=20))),
    "timing_out problem": in_queue(trend=Trend(Endings(timed_out=20))),
    "overdue warning": in_queue(due=1, oldest_due_seconds=60),
    "overdue problem": in_queue(due=1, oldest_due_seconds=900),
    "silent_worker problem": replace(
        WELL, overview=Overview("default", [], [replace(WORKER, silent=True)], [], 0, 0)
    ),
    "worker_trouble warning": in_trouble(Trouble("unhold_jobs", 5, "DataError: NUL")),
    "worker_trouble problem": in_trouble(Trouble("unhold_jobs", 60, "DataError: NUL")),
    "silent_consumer problem": with_consumers(replace(CONSUMER, silent=True)),
    "no_consumer warning": with_consumers(sources=("bank_answers",)),
    "no_consumer problem": with_consumers(awaiting=1, sources=("bank_answers",)),
    "no_consumer problem, of another source": with_consumers(
        CONSUMER, awaiting=1, sources=("bank_answers", "shop_answers")
    ),
    "time_outs problem": replace(WELL, past_deadline=1),
    "undecided problem": replace(WELL, undecided=1),
    "unknown_type problem": replace(WELL, unknown_types={"gone": 1}),
    "throttler_setting problem": replace(WELL, throttler_problems=("no module",)),
    "early_answers warning": replace(WELL, inbox=Inbox(early=1_001)),
    "early_answers warning, old": replace(WELL, inbox=Inbox(early=1, oldest_early_seconds=50_000)),
    "unmatched_answers warning": replace(WELL, inbox=Inbox(unmatched=1)),
    "malformed_messages warning": replace(WELL, inbox=Inbox(malformed=1)),
    "edited note": replace(WELL, edits={"queue bank": "throttle_limit is 5, and 9 in the code"}),
    "not_pruned warning": replace(WELL, unpruned=("bank",)),
    "schedule_late problem": replace(WELL, schedules=(ScheduleState("s", late_seconds=61),)),
    "schedule_problem problem": replace(WELL, schedules=(ScheduleState("s", problem="bad"),)),
    "schedule_skipping warning": replace(WELL, schedules=(ScheduleState("s", skipped=5),)),
    "schedule_retired warning": replace(WELL, schedules=(ScheduleState("s", retired=True),)),
    "clock_skew warning": replace(WELL, clock_offset_seconds=-5.1),
    "invalid_indexes problem": in_server(invalid_indexes=("hipq_job_half",)),
    "autovacuum_off problem": in_server(has_autovacuum=False),
    "autovacuum_off problem, of a table": in_server(tables_without_autovacuum=("hipq_job",)),
    "dead_peer warning": in_server(notices_dead_peer=False),
}
HEALTHY: dict[str, Measured] = {
    "nothing to do": WELL,
    "a queue without jobs and without worker": in_queue(served=False),
    "a pause without due jobs": in_queue(paused=True, scheduled=5),
    "jobs that have just become due": in_queue(due=10_001, oldest_due_seconds=59),
    "a full queue that moves": in_queue(due=5, oldest_due_seconds=59, load=10.0),
    "jobs that wait for answers": in_queue(throttle_limit=0.0, awaiting_answer=5_000),
    "a source that is read": with_consumers(CONSUMER, awaiting=1, sources=("bank_answers",)),
    "a consumer of a source that was configured once": with_consumers(CONSUMER),
    "a type of old jobs": replace(WELL, unknown_types={"gone": 0}),
    "a few early answers": replace(WELL, inbox=Inbox(early=1_000, oldest_early_seconds=43_200)),
    "clocks that nearly agree": replace(WELL, clock_offset_seconds=5),
}


@pytest.mark.parametrize("name", SICK)
def test_what_is_wrong_is_found_alone_and_said_in_sentences_of_one_line(name: str) -> None:
    code, level = name.partition(",")[0].split()

    [finding] = diagnose(SICK[name])

    assert (finding.code, finding.level) == (code, level)
    for text in (finding.where, finding.what, finding.why, finding.what_to_do):
        assert text
        assert "\n" not in text


@pytest.mark.parametrize("name", HEALTHY)
def test_what_is_well_is_not_found(name: str) -> None:
    assert diagnose(HEALTHY[name]) == []


def test_problems_come_before_warnings() -> None:
    found = diagnose(
        replace(
            in_queue(paused=True, due=1, oldest_due_seconds=1),
            clock_offset_seconds=60,
            undecided=1,
        )
    )

    assert [finding.level for finding in found] == [Level.PROBLEM, Level.WARNING, Level.WARNING]


def test_nothing_else_is_said_where_migrations_are_missing() -> None:
    sick = replace(WELL, missing_migrations=("hipq.0001_initial",), undecided=1)

    assert [finding.code for finding in diagnose(sick)] == ["missing_migrations"]


def said(measured: Measured) -> Finding:
    [finding] = diagnose(measured)
    return finding


def test_an_operator_reads_what_to_type() -> None:
    unserved = said(in_queue(served=False, due=1_204, oldest_due_seconds=7_451))
    invalid = said(in_server(invalid_indexes=("hipq_job_half", "hipq_job_other")))
    table = said(in_server(tables_without_autovacuum=("hipq_job",)))

    assert unserved.what.startswith(
        "no worker serves it; 1,204 jobs are due, the oldest for 2:04:11"
    )
    assert unserved.what_to_do == "Start one: manage.py hipq_worker bank"
    assert invalid.what == "indexes are invalid: hipq_job_half, hipq_job_other."
    assert invalid.what_to_do == "Run REINDEX INDEX CONCURRENTLY hipq_job_half;"
    assert table.where == "table hipq_job"
    assert table.what_to_do == "ALTER TABLE hipq_job RESET (autovacuum_enabled);"


def test_a_command_is_for_the_instance() -> None:
    def of_shop(measured: Measured) -> str:
        return said(replace(measured, instance="shop")).what_to_do

    silent = replace(CONSUMER, silent=True, source="bank answers")
    consumers = Overview("shop", [QUEUE], [WORKER], [silent], 0, 0)

    assert of_shop(in_queue(served=False, due=1)).endswith(
        " manage.py hipq_worker bank --instance shop"
    )
    assert of_shop(in_queue(due=1, oldest_due_seconds=1_000)).endswith(
        " manage.py hipq_worker bank --instance shop"
    )
    assert of_shop(replace(WELL, sources=("bank",))).endswith(
        " manage.py hipq_consume bank --instance shop"
    )
    assert of_shop(replace(WELL, overview=consumers)).endswith(
        " manage.py hipq_consume 'bank answers' --instance shop"
    )
    assert "manage.py hipq_prune --instance shop each day" in of_shop(
        replace(WELL, unpruned=("bank",))
    )
    assert "manage.py hipq_prune each day" in said(replace(WELL, unpruned=("bank",))).what_to_do


@pytest.mark.parametrize(
    ("parameters", "notices"),
    [
        ({"host": "db.example"}, False),
        ({"host": "db.example", "tcp_user_timeout": 30_000}, True),
        ({"host": "db.example", "keepalives_idle": "10"}, True),
        ({"host": "/run/postgresql"}, True),
        ({"host": ""}, True),
    ],
)
def test_a_connection_by_tcp_must_be_told_when_its_peer_is_gone(
    parameters: dict[str, Any], notices: bool
) -> None:
    assert notices_dead_peer(parameters) is notices


def test_skipped_due_times_are_not_laid_to_a_live_job_alone() -> None:
    found = said(replace(WELL, schedules=(ScheduleState("s", skipped=5),)))

    assert "still live" not in found.what
    assert "reasons" in found.what_to_do
