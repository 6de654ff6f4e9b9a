"""The setting and the code make rows; what an operator changes afterwards wins."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from django.core.management import call_command
from pytest_django import DjangoAssertNumQueries, Settings

import hipq_django as hipq
from hipq_django.conf.instances import get_instance
from hipq_django.models import JobType, Queue, Schedule, Worker
from hipq_django.models.catalog import get_job_type, get_queue, sync
from hipq_django.processes.row_sync import RowSync
from hipq_django.schedules import declared
from tests.declaring import Declare
from tests.factories import WorkerFactory

pytestmark = pytest.mark.django_db


def bank(**options: Any) -> dict[str, Any]:
    return {"default": {"QUEUES": {"bank": options}}}


def stored() -> Queue:
    return Queue.objects.get(name="bank")


def synced(settings: Settings, **options: Any) -> Queue:
    settings.HIPQ = bank(**options)
    sync("default")
    return stored()


def test_a_queue_of_the_setting_is_created_with_its_options(settings: Settings) -> None:
    queue = synced(
        settings, THROTTLE_LIMIT=10, ORDER="ageing", AGEING_SECONDS=30, GRANULARITY_SECONDS=5,
        RETENTION_DAYS=7,
    )  # fmt: skip

    assert (queue.throttle_limit, queue.order, queue.ageing_seconds) == (10, "ageing", 30)
    assert (queue.granularity_seconds, queue.retention_days, queue.paused) == (5, 7, False)


def test_a_changed_setting_changes_the_queue(settings: Settings) -> None:
    synced(settings, THROTTLE_LIMIT=10)

    assert synced(settings, THROTTLE_LIMIT=20, ORDER="priority").throttle_limit == 20
    assert stored().order == "priority"


@pytest.mark.parametrize(
    ("given", "others", "succeeded"),
    [
        ({"succeeded": 1, "others": 90}, 90, 1),
        ({"succeeded": 1}, 14, 1),
        ({"others": 90}, 90, None),
    ],
)
def test_successes_may_be_kept_for_another_time(
    settings: Settings, given: dict[str, float], others: float, succeeded: float | None
) -> None:
    queue = synced(settings, RETENTION_DAYS=given)
    assert (queue.retention_days, queue.retention_days_succeeded) == (others, succeeded)

    queue = synced(settings, RETENTION_DAYS=7)
    assert (queue.retention_days, queue.retention_days_succeeded) == (7, None)


def test_what_an_operator_changed_wins_over_the_setting(settings: Settings) -> None:
    """H17: also over a setting that changes later."""
    synced(settings, THROTTLE_LIMIT=10)
    Queue.objects.update(throttle_limit=5, paused=True)

    again = synced(settings, THROTTLE_LIMIT=10).throttle_limit
    changed = synced(settings, THROTTLE_LIMIT=20, RETENTION_DAYS=3)

    assert (again, changed.throttle_limit, changed.retention_days) == (5, 5, 3)
    assert changed.paused


EDITED = {
    "queue bank": "throttle_limit is 5.000, and 20 in the code",
    "job type charge": "queue is post, and bank in the code",
    "schedule nightly": "cron is 0 5 * * *, and 0 3 * * * in the code",
}


@pytest.mark.parametrize("names", [[], ["bank", "charge", "nightly"], ["bank"]])
def test_what_was_edited_is_listed_and_stays_until_it_is_reset(
    settings: Settings, declare: Declare, names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    settings.HIPQ = bank(THROTTLE_LIMIT=20)
    declare("charge", queue="bank", schedule={"nightly": "0 3 * * *"})(handler)
    call_command("hipq_sync")
    assert (capsys.readouterr().out, declared.edits(get_instance())) == ("", {})
    Queue.objects.filter(name="bank").update(throttle_limit=5)
    JobType.objects.filter(name="charge").update(queue=get_queue("default", "post"))
    Schedule.objects.update(cron="0 5 * * *")

    call_command("hipq_sync")
    assert capsys.readouterr().out == "".join(f"{n}: {what}.\n" for n, what in EDITED.items())
    call_command("hipq_sync", "--reset", *names)

    left = [] if names != ["bank"] else [*EDITED][1:]
    assert declared.edits(get_instance()) == {name: EDITED[name] for name in left}


def test_a_declared_type_gets_a_row_with_its_defaults(declare: Declare) -> None:
    declare("charge", queue="bank", timeout=60, priority=5, throttle_factor=2.5,
            time_windows=["05:00-07:00"], time_zone="Europe/Paris")(lambda job: None)  # fmt: skip

    sync("default")

    row = JobType.objects.get(name="charge")
    assert (row.queue.name, row.default_timeout, row.default_priority) == ("bank", 60, 5)
    assert (row.default_throttle_factor, row.default_time_windows) == (
        Decimal("2.5"), ["05:00-07:00"],
    )  # fmt: skip
    assert (row.time_zone, row.has_response_handler) == ("Europe/Paris", False)


def test_a_changed_declaration_changes_the_row(declare: Declare) -> None:
    first = declare("charge", priority=5)
    first(handler)
    sync("default")

    declare("charge", priority=6, queue="bank")(handler).on_response(lambda job, response: None)
    sync("default")

    row = JobType.objects.get(name="charge")
    assert (row.default_priority, row.queue.name, row.has_response_handler) == (6, "bank", True)


def handler(job: Any) -> None:
    """Do nothing."""


def test_what_an_operator_changed_wins_over_the_declaration(declare: Declare) -> None:
    declare("charge", priority=5, timeout=60)(handler)
    sync("default")
    JobType.objects.filter(name="charge").update(default_priority=1)

    declare("charge", priority=6, timeout=90)(handler)
    row = get_job_type("default", "charge")

    assert (row.default_priority, row.default_timeout) == (1, 90)


def test_a_declaration_of_a_type_that_was_enqueued_before_is_taken_over(declare: Declare) -> None:
    """T7: the row was registered with the defaults by the first enqueue."""
    hipq.enqueue("charge")

    declare("charge", queue="bank", priority=5)(handler)
    job = hipq.enqueue("charge")

    assert (job.queue.name, job.priority) == ("bank", 5)


def test_nothing_is_written_where_nothing_changed(
    declare: Declare, settings: Settings, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    declare("charge")(handler)
    synced(settings, THROTTLE_LIMIT=10)
    before = Queue.objects.get(name="bank").update_time
    get_job_type("default", "charge")

    with django_assert_num_queries(1):
        get_job_type("default", "charge")
    sync("default")

    assert stored().update_time == before


# Two releases


class Releases:
    """The setting and the code of two releases, one of which this process has."""

    def __init__(self, declare: Declare, settings: Settings) -> None:
        self._declare = declare
        self._settings = settings

    def older(self) -> None:
        """Have the code of the older one."""
        self._has(10, [], "0 2 * * *", priority=7)

    def newer(self) -> None:
        """Have the code of the newer one."""
        self._has(5, ["iban"], "0 3 * * *", priority=8).on_response(lambda job, response: None)

    def _has(self, limit: int, sensitive: list[str], cron: str, **options: Any) -> Any:
        self._declare.forget_all()
        self._settings.HIPQ = bank(THROTTLE_LIMIT=limit)
        options |= {"sensitive": sensitive, "schedule": {"nightly": cron}}
        return self._declare("charge", queue="bank", **options)(handler)

    def start_older(self) -> Worker:
        """Let a worker of the older one start, and go on with the code of the newer one."""
        self.older()
        worker: Worker = WorkerFactory.create()
        started(worker)
        self.newer()
        return worker


OLDER: tuple[Any, ...] = (10, 7, [], False, "0 2 * * *")
NEWER: tuple[Any, ...] = (5, 8, ["iban"], True, "0 3 * * *")


def in_rows() -> tuple[Any, ...]:
    row, schedule = JobType.objects.get(name="charge"), Schedule.objects.get(name="nightly")
    of_type = (row.default_priority, row.sensitive, row.has_response_handler)
    return (stored().throttle_limit, *of_type, schedule.cron)


@pytest.fixture
def releases(declare: Declare, settings: Settings) -> Releases:
    return Releases(declare, settings)


def started(worker: Worker | None = None) -> RowSync:
    """What a worker of the release that this process has writes, after its start."""
    declaring = RowSync(get_instance())
    declaring.start()
    declaring.registered(worker or WorkerFactory.create())
    declaring.declare()
    return declaring


@pytest.fixture
def newer(releases: Releases) -> RowSync:
    """That of a worker of the newer release."""
    releases.newer()
    return started()


@pytest.mark.parametrize("looks_meanwhile", [True, False])
def test_what_a_worker_of_the_release_before_wrote_that_started_again_is_written_back(
    looks_meanwhile: bool, newer: RowSync, releases: Releases
) -> None:
    older = releases.start_older()
    if looks_meanwhile:
        newer.declare()
    with_both = in_rows()
    older.live_row().update(state=Worker.State.STOPPED)

    newer.declare()

    assert (with_both, in_rows()) == (OLDER, NEWER)


@pytest.mark.parametrize("is_newest", [True, False])
def test_only_the_newest_worker_says_what_a_task_takes(declare: Declare, is_newest: bool) -> None:
    declare.task("shop.send")(lambda invoice_id: None)
    sync("default")
    row = JobType.objects.filter(name="shop.send")
    row.update(signature="(other)")

    sync("default", is_newest=is_newest)

    assert row.get().signature == ("(invoice_id)" if is_newest else "(other)")


def test_a_worker_that_is_not_the_newest_keeps_schedules_from_being_retired(
    newer: RowSync, declare: Declare
) -> None:
    long_ago = datetime(2025, 1, 1, tzinfo=UTC)
    Schedule.objects.update(retired=True, seen_time=long_ago)
    schedules = {"nightly": "0 2 * * *", "added": "0 1 * * *"}
    declare("charge", queue="bank", schedule=schedules)(handler)

    declared.sync("default", is_newest=False)

    row = Schedule.objects.get(name="nightly")
    assert (row.cron, row.retired) == ("0 3 * * *", False)
    assert row.seen_time != long_ago
    assert Schedule.objects.get(name="added").cron == "0 1 * * *"
