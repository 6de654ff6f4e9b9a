"""What `django.tasks` tells of an end is what has become of the job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from hipq_django.models import Job
from hipq_django.signals import job_finished
from tests.concurrency.conftest import Refuse
from tests.concurrency.sessions import PATIENCE_SECONDS
from tests.hand_worker import HandWorker
from tests.integration.tasks_backend.conftest import finished
from tests.testapp import tasks as module
from tests.threads import Crew, working

__all__ = ["finished"]

pytestmark = pytest.mark.django_db(transaction=True)

tasks: Any = module
"""Of whichever backend, for type checkers."""

REFUSED = "NEW.outcome = 'succeeded'"


@pytest.fixture(params=[False, True], ids=["alone", "beside"])
def beside(request: pytest.FixtureRequest) -> Iterator[None]:
    """With a receiver of `job_finished`, and without one."""
    note = lambda **_: None  # noqa: E731 - signals hold it weakly
    if request.param:
        job_finished.connect(note)
    yield
    job_finished.disconnect(note)


@pytest.mark.usefixtures("beside")
def test_a_task_whose_result_is_refused_is_told_as_a_failure(
    refuse: Refuse, finished: list[Any]
) -> None:
    result = tasks.tell.enqueue("x")
    refuse(REFUSED)

    HandWorker().work()
    result.refresh()

    assert [r.status for r in finished] == ["FAILED"]
    assert result.status == "FAILED"
    assert finished[0].errors == result.errors


@pytest.mark.usefixtures("beside")
def test_a_task_that_leaves_a_transaction_open_is_told_as_a_failure(finished: list[Any]) -> None:
    result = tasks.begin_and_forget.enqueue()

    with working(Crew(1)) as crew:
        crew.scheduler.run_once()
        crew.pool.await_done(PATIENCE_SECONDS)
        crew.scheduler.persist_batch()
    result.refresh()

    assert Job.objects.get().outcome == "failed"
    assert [r.status for r in finished] == ["FAILED"]
    assert finished[0].errors[0].exception_class_path.endswith("OpenTransactionError")
