"""W9: answers for many waiting jobs, on each way they may come."""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from django.core.wsgi import get_wsgi_application
from django.db import connection
from django.test import RequestFactory

import hipq_django as hipq
from benchmarks.measuring.measurements import POLL_SECONDS, check_equal
from benchmarks.measuring.workers import Workers, running
from hipq_django.models import Answer, Job
from tests.kafka import kafka_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.hipq.runner import HipqRunner
    from benchmarks.measuring.runner import Figures

TOPIC = "answers"


def measure(runner: HipqRunner, sizes: dict[str, Any]) -> Figures:
    """Bring the jobs to waiting, then answer a share on each way and the rest in batches."""
    waiting, share = sizes["waiting"], sizes["share"]
    runner.enqueue_new(
        hipq.NewJob("ask", {"number": number}, job_key=_key(number)) for number in range(waiting)
    )
    with running(runner.worker(None, "answers")) as workers:
        _await(runner.mine().filter(state=Job.State.RUNNING, worker=None).count, workers, waiting)
    # Jobs wait for minutes or days: autovacuum is done with what brought them there.
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE hipq_job")
    parts = [range(start, start + share) for start in range(0, waiting, share)]
    yield "answers_per_second", _rate(_complete, parts[0])
    yield "answers_per_second_threads", _rate_of_threads(_complete, parts[1], sizes["threads"])
    yield "callbacks_per_second", _rate(_call_back, _callbacks(parts[2]))
    callbacks = _callbacks(parts[3])
    yield "callbacks_per_second_threads", _rate_of_threads(_call_back, callbacks, sizes["threads"])
    yield "answers_per_second_from_kafka", _rate_from_kafka(runner, parts[4])
    rest = [_answer(number) for part in parts[5:] for number in part]
    batches = [rest[at : at + sizes["batch"]] for at in range(0, len(rest), sizes["batch"])]
    yield "answers_per_second_in_batches", _rate(_receive, batches) * sizes["batch"]
    check_equal("unanswered jobs", runner.unfinished(), 0)


def _rate(answer: Callable[[Sequence[Any]], None], work: Sequence[Any]) -> float:
    began = time.perf_counter()
    answer(work)
    return len(work) / (time.perf_counter() - began)


def _rate_of_threads(
    answer: Callable[[Sequence[Any]], None], work: Sequence[Any], threads: int
) -> float:
    """As `_rate`, for a process in which several threads answer at once, as web servers do."""

    def answer_part(part: Sequence[Any]) -> None:
        try:
            answer(part)
        finally:
            connection.close()

    with ThreadPoolExecutor(threads) as pool:
        began = time.perf_counter()
        list(pool.map(answer_part, [work[n::threads] for n in range(threads)]))
        return len(work) / (time.perf_counter() - began)


def _complete(numbers: Sequence[int]) -> None:
    for number in numbers:
        hipq.complete("ask", _key(number), _response(number))


def _receive(batches: Sequence[Sequence[hipq.NewAnswer]]) -> None:
    for batch in batches:
        hipq.receive_many(batch)


def _callbacks(numbers: Sequence[int]) -> list[tuple[str, bytes]]:
    """Return path and body of the requests that answer these jobs."""
    jobs = Job.objects.filter(job_key__in=map(_key, numbers)).select_related("queue")
    request = RequestFactory().get("/")
    return [
        (
            hipq.callback_url(job, request=request).removeprefix("http://testserver"),
            json.dumps({"response": _response(job.job_data["number"])}).encode(),
        )
        for job in jobs
    ]


def _call_back(callbacks: Sequence[tuple[str, bytes]]) -> None:
    """Hand the requests to Django as a server does that has read them from its socket."""
    application = get_wsgi_application()
    for path, body in callbacks:
        request = RequestFactory().post(path, body, content_type="application/json")
        response = application(request.environ, _start)
        check_equal("status of a callback", response.status_code, 200)
        response.close()


def _start(*_: Any) -> Callable[[bytes], object]:
    """Begin a response that nobody reads."""
    return len


def _rate_from_kafka(runner: HipqRunner, numbers: Sequence[int]) -> float:
    """Return how many messages a consumer stores in a second, from the first batch to the last."""
    with kafka_cluster() as kafka:
        kafka.create_topic(TOPIC, partitions=4)
        kafka.produce(TOPIC, *[json.dumps(_message(number)).encode() for number in numbers])
        before = Answer.objects.count()

        def stored() -> int:
            return Answer.objects.count() - before

        command = [sys.executable, "-m", "django", "hipq_consume", TOPIC, "-v0"]
        with running(command, environment={"BENCH_KAFKA": kafka.bootstrap}) as consumer:
            first = _await(stored, consumer, 1)
            began = time.perf_counter()
            _await(stored, consumer, len(numbers))
            return (len(numbers) - first) / (time.perf_counter() - began)


def _await(count: Callable[[], int], workers: Workers, number: int) -> int:
    """Wait until there are so many; return how many there are."""
    while (found := count()) < number:
        workers.check()
        time.sleep(POLL_SECONDS * 25)
    return found


def _key(number: int) -> str:
    return f"order-{number}"


def _response(number: int) -> dict[str, int]:
    return {"number": number}


def _answer(number: int) -> hipq.NewAnswer:
    return hipq.NewAnswer("ask", _key(number), response=_response(number), message_id=_key(number))


def _message(number: int) -> dict[str, Any]:
    return {"order": _key(number), "response": _response(number)}
