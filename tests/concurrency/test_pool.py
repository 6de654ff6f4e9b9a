"""The threads of a worker take up what is handed to them, all at once where there is enough."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import hipq_django as hipq
from hipq_django.processes.pool import ThreadPool
from hipq_django.results import Succeeded
from tests.concurrency.sessions import PATIENCE_SECONDS
from tests.declaring import Declare
from tests.hand_worker import HandWorker

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
    pool = ThreadPool(THREADS, lambda: None, lambda: None)
    pool.open()
    try:
        for _ in range(3):
            for number in portions:
                pool.start([worker.claims.pop() for _ in range(number)])
            pool.await_done(PATIENCE_SECONDS)
        results = pool.take_results()
    finally:
        pool.close()

    assert len(results) == THREADS * 3
    assert all(isinstance(result, Succeeded) for result in results)
