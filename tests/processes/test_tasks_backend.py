"""Tasks of `django.tasks` in real workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hipq_django.tasks_backend.names import TaskResultStatus
from tests.processapp.anywhere import twice, wait_for_gate
from tests.processes.conftest import Workers, eventually

pytestmark = pytest.mark.processes


def test_a_task_whose_worker_is_killed_runs_again(workers: Workers, tmp_path: Path) -> None:
    result = wait_for_gate.enqueue(str(tmp_path))
    victim = workers.start("-v0")
    eventually((tmp_path / "begun-1").exists, "the task has begun")
    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.RUNNING, 1)

    victim.kill()
    victim.wait()
    (tmp_path / "gate").touch()
    workers.start("-v0")

    def is_finished() -> bool:
        result.refresh()
        return bool(result.is_finished)

    eventually(is_finished, "another worker has run it")
    assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, 2)
    assert (tmp_path / "begun-2").exists()
    assert len(result.worker_ids) == len(set(result.worker_ids)) == result.attempts == 2
    assert [error.exception_class.__name__ for error in result.errors] == ["WorkerLost"]


def test_a_worker_runs_tasks_of_a_module_that_it_never_imported(workers: Workers) -> None:
    results: list[Any] = [twice.enqueue(number) for number in range(20)]

    assert workers.run("--until-idle", "-v0") == 0

    for result in results:
        result.refresh()
    assert [result.return_value for result in results] == [2 * n for n in range(20)]
