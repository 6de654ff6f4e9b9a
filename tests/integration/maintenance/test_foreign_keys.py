"""Models of the project that name jobs: what becomes of them, and of the jobs, at `hipq_prune`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.apps import apps
from django.db import connection, models

import hipq_django as hipq
from hipq_django.conf.instances import get_instance
from hipq_django.maintenance import retention
from hipq_django.maintenance.retention import not_needed
from hipq_django.models import Answer, Attempt, Job
from tests.factories import AnswerFactory
from tests.running import run_due_jobs

pytestmark = [pytest.mark.conformance, pytest.mark.django_db(transaction=True)]

Declare = Callable[..., Any]


@pytest.fixture
def declare_model() -> Iterator[Declare]:
    """Let the project have a model with one foreign key, until the test ends."""
    made = []

    def declare(to: type[models.Model], on_delete: Any, **options: Any) -> Any:
        class Receipt(models.Model):
            """What the project keeps about a row of ours."""

            row = models.ForeignKey(to, on_delete, null=True, related_name="+", **options)

            class Meta:
                app_label = "testapp"

            def __str__(self) -> str:
                return f"receipt {self.pk}"

        made.append(Receipt)
        with connection.schema_editor() as editor:
            editor.create_model(Receipt)
        return Receipt

    yield declare
    for model in made:
        with connection.schema_editor() as editor:
            editor.delete_model(model)
        del apps.all_models["testapp"][str(model._meta.model_name)]
        apps.clear_cache()


@pytest.fixture
def jobs() -> list[Job]:
    """Two jobs that have failed."""
    made = hipq.enqueue_many([hipq.NewJob("boom")] * 2)
    run_due_jobs()
    return made


def pruned() -> int:
    return retention.prune(get_instance(), days=0)["default"]


@pytest.mark.parametrize(("on_delete", "left"), [(models.SET_NULL, [None]), (models.CASCADE, [])])
def test_what_django_does_on_deletion_is_done(
    declare_model: Declare, jobs: list[Job], on_delete: Any, left: list[Any]
) -> None:
    receipts = declare_model(Job, on_delete)
    receipts.objects.create(row=jobs[0])

    assert pruned() == 2
    assert not Job.objects.exists()
    assert not Attempt.objects.exists()
    assert [*receipts.objects.values_list("row", flat=True)] == left


@pytest.mark.parametrize("on_delete", [models.PROTECT, models.RESTRICT])
def test_a_job_that_the_project_protects_stays_with_all_that_is_its_own(
    declare_model: Declare,
    jobs: list[Job],
    on_delete: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    receipt = declare_model(Job, on_delete).objects.create(row=jobs[0])
    caplog.clear()

    counts = [retention.prune(get_instance(), days=0, dry_run=True)["default"], pruned(), pruned()]

    assert counts == [1, 1, 0]
    assert Job.objects.get() == jobs[0]
    assert Attempt.objects.count() == 1
    assert not not_needed(Job.objects.all()).exists()  # the doctor does not call it unpruned
    assert caplog.text == ""
    receipt.delete()
    assert pruned() == 1


def test_answers_that_the_project_names_are_pruned_too(
    declare_model: Declare, jobs: list[Job]
) -> None:
    """Those of a job, and those without one."""
    receipts = declare_model(Answer, models.SET_NULL)
    for job in (jobs[0], None):
        status = "late" if job else "unmatched"
        receipts.objects.create(row=AnswerFactory.create(job=job, status=status))

    counts = retention.prune(get_instance(), days=0)

    assert (counts["default"], counts["answers"]) == (2, 1)
    assert not Answer.objects.exists()
    assert receipts.objects.filter(row=None).count() == 2
