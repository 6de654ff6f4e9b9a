"""The threads of a worker take up what is handed to them, all at once where there is enough."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import hipq_django as hipq
from hipq_django.transitions.values import Succeeded
from tests.concurrency.sessions import PATIENCE_SECONDS
from tests.declaring import Declare
from tests.hand_worker import HandWorker
from tests.threads import Crew, working

pytestmark = pytest.mark.django_db(transaction=True)

THREADS = 6


@pytest.mark.parametrize("portions", [[THREADS], [1] * THREADS, [1, THREADS - 1], [3, 3]])
def test_all_threads_work_at_once(declare: Declare, portions: list[int]) -> None:
    """However the jobs come: a thread that takes one up sees to it that the next one is."""
    together = threading.Barrier(THREADS, timeout=PATIENCE_SECONDS)

    @declare("meet")
    def meet(job: Any) -> None:
        together.wait()

    hipq.enqueue_many([hipq.NewJob("meet")] * THREADS * 3)
    worker = HandWorker()
    worker.run_pass()
    with working(Crew(THREADS)) as crew:
        for _ in range(3):
            for number in portions:
                claims = [worker.claims.pop() for _ in range(number)]
                crew.batch.add(claims)
                crew.pool.start(claims)
            crew.pool.await_done(PATIENCE_SECONDS)
        results = crew.batch.lease().results

    assert len(results) == THREADS * 3
    assert all(isinstance(result, Succeeded) for result in results)
