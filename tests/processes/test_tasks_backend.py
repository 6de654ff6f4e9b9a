"""Tasks of `django.tasks` in real workers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.processapp.anywhere import twice
from tests.processes.conftest import Workers

pytestmark = pytest.mark.processes


def test_a_worker_runs_tasks_of_a_module_that_it_never_imported(workers: Workers) -> None:
    results: list[Any] = [twice.enqueue(number) for number in range(20)]

    assert workers.run("--until-idle", "-v0") == 0

    for result in results:
        result.refresh()
    assert [result.return_value for result in results] == [2 * n for n in range(20)]
