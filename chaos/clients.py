"""The project's other processes, played by threads: who enqueues, the bank, who operates.

Each does what a view would do, through the public functions only, and writes into the ledger
what it was told had been done. What failed is not repeated with the same key, but by the bank,
whose messages have ids: what nobody acknowledged may have happened or not.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.db import Error, connection, transaction
from django.utils import timezone

import hipq_django as hipq
from chaos.ledger import Ledger, Reader, now
from hipq_django.models import Job, Queue

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from random import Random

    from chaos.orders import Order, Stream

MOST_LIVE = 800
"""With so many unfinished jobs nothing more is enqueued by the everyday load: it follows what
the machine can do."""
CATCH_UP_SECONDS = 0.5
PAUSED_SECONDS = (0.5, 1.5)
SERVED_SECONDS = (1.0, 3.0)
LOOK_SECONDS = 0.02
TELLERS = 4
AGAIN_SECONDS = 0.2
OPERATION_SECONDS = 0.3


class RolledBackError(Exception):
    """Raised to roll a transaction back."""


class Loop:
    """A thread that does something again and again until it is closed."""

    def __init__(self, step: Callable[[], float]) -> None:
        self._step = step
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._failure: Exception | None = None

    def open(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self, seconds: float = 30.0) -> None:
        """Stop after the present step; one that hangs is left alone. Raise what ended the loop."""
        self._closed.set()
        self._thread.join(seconds)
        if self._failure:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._closed.wait(self._attempt()):
                pass
        except Exception as error:  # what is no fault of the database is one of the harness
            self._failure = error
        finally:
            connection.close()

    def _attempt(self) -> float:
        try:
            return self._step()
        except Error:
            connection.close()
            return AGAIN_SECONDS


class Client:
    """Enqueues orders, and writes down what was acknowledged."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._numbers = itertools.count(1)
        self.to_cancel: list[tuple[float, Job]] = []

    def place(self, order: Order) -> None:
        """Enqueue one job."""
        key = self._plan(order)
        if order.is_answered_before:
            Bank.answer(self._ledger, order.job_type, key, f"{key}-before")
        job = self._enqueue(order, key)
        if job is None:
            return
        self._ledger.write("enqueued", key)
        if order.cancel_after is not None:
            self.to_cancel.append((now() + order.cancel_after, job))

    def place_many(self, orders: Sequence[Order]) -> None:
        """Enqueue jobs in one statement."""
        placed = {self._key(order): order for order in orders}
        self._ledger.write_many("planned", {key: _planned(o) for key, o in placed.items()})
        hipq.enqueue_many(
            hipq.NewJob(order.job_type, order.data | {"key": key}, **_options(order, key))
            for key, order in placed.items()
        )
        self._ledger.write_many("enqueued", {key: {} for key in placed})

    def _plan(self, order: Order) -> str:
        key = self._key(order)
        self._ledger.write("planned", key, **_planned(order))
        return key

    def _key(self, order: Order) -> str:
        return f"{order.job_type}-{next(self._numbers)}"

    def _enqueue(self, order: Order, key: str) -> Job | None:
        data = order.data | {"key": key}
        if not order.is_rolled_back:
            return hipq.enqueue(order.job_type, data, **_options(order, key))
        try:
            with transaction.atomic():
                hipq.enqueue(order.job_type, data, **_options(order, key))
                raise RolledBackError
        except RolledBackError:
            return None


def _planned(order: Order) -> dict[str, Any]:
    return {"due": now() + order.delay, "order": asdict(order)}


def _options(order: Order, key: str) -> Any:
    options: dict[str, Any] = {"timeout": order.timeout, "throttle_factor": order.weight}
    if order.is_keyed:
        options["job_key"] = key
    if order.delay:
        options["scheduled_run_time"] = timezone.now() + timedelta(seconds=order.delay)
    return options


def stream_loop(
    stream: Stream, share: float, client: Client, live: Callable[[], int], chance: Random
) -> Loop:
    """Return the thread that enqueues a stream's jobs, at a share of its pace."""

    due = now()

    def step() -> float:
        nonlocal due
        if live() < MOST_LIVE:
            client.place(stream.make(chance))
        # After a wait for the database not all that was missed is made up for.
        due = max(due, now() - CATCH_UP_SECONDS)
        due += chance.uniform(0.5, 1.5) / (stream.per_second * share)
        return max(due - now(), 0.0)

    return Loop(step)


class Bank:
    """Answers the requests that it reads in the ledger, after a while, once, twice or never."""

    def __init__(self, ledger: Ledger, path: Path, chance: Random) -> None:
        self._ledger = ledger
        self._reader = Reader(path)
        self._chance = chance
        self._due: list[tuple[float, str, str, str]] = []
        self._tellers = ThreadPoolExecutor(TELLERS)
        self._failures: list[Exception] = []

    def step(self) -> float:
        """Read new requests, and give what is due to a teller."""
        if self._failures:
            raise self._failures[0]
        for event in self._reader.read():
            if event.what == "begin" and event.more["bank"]:
                self._plan(event.key, event.attempt, event.more)
        while self._due and self._due[0][0] <= now():
            self._tellers.submit(self._tell, *heapq.heappop(self._due)[1:])
        return LOOK_SECONDS

    def close(self) -> None:
        """Let the tellers end."""
        self._tellers.shutdown(wait=False, cancel_futures=True)

    def _plan(self, key: str, attempt: int, request: dict[str, Any]) -> None:
        mode, is_first = request["bank"], attempt == 1
        if mode == "is silent at first" and is_first:
            return
        verdict = "no" if mode == "says no at first" and is_first else "yes"
        self._add(key, verdict, f"{key}-{attempt}", request["delay"])
        if mode == "answers twice":
            self._add(key, verdict, f"{key}-{attempt}-again", self._chance.uniform(0, 1))

    def _add(self, key: str, verdict: str, message_id: str, delay: float) -> None:
        heapq.heappush(self._due, (now() + delay, key, verdict, message_id))

    def _tell(self, key: str, verdict: str, message_id: str) -> None:
        """Send the answer until it is acknowledged, as a partner does."""
        job_type = key.rpartition("-")[0]
        while True:
            try:
                if verdict == "yes":
                    self.answer(self._ledger, job_type, key, message_id)
                else:
                    hipq.fail(job_type, key, "declined", message_id=message_id)
            except Error:
                connection.close()
                time.sleep(AGAIN_SECONDS)
            except Exception as error:  # told by the next step: nobody looks at this thread
                self._failures.append(error)
                return
            else:
                return

    @staticmethod
    def answer(ledger: Ledger, job_type: str, key: str, message_id: str) -> None:
        """Send a response, and write down that it was acknowledged."""
        response = {"key": key, "message": message_id}
        status = hipq.complete(job_type, key, response, message_id=message_id).status
        ledger.write("answered", key, status=str(status), message=message_id)


class Operator:
    """Cancels jobs, and pauses and resumes a queue."""

    def __init__(self, ledger: Ledger, client: Client, chance: Random) -> None:
        self._ledger = ledger
        self._client = client
        self._chance = chance
        self._is_paused = False

    def cancel_some(self) -> float:
        """Cancel the jobs whose time for that has come."""
        waiting = self._client.to_cancel
        for entry in [entry for entry in waiting if entry[0] <= now()]:
            waiting.remove(entry)
            self._cancel(entry[1])
        return LOOK_SECONDS

    def _cancel(self, job: Job) -> None:
        key = job.job_data["key"]
        try:
            hipq.cancel(job)
        except hipq.InvalidJobError:
            return  # it was final already
        self._ledger.write("cancelled", key)

    def turn(self) -> float:
        """Pause the queue, or resume it."""
        if self._is_paused:
            # Before: from now on nobody can say any more that it is paused.
            self._ledger.write("resuming")
            self._set_paused(False)
            self._is_paused = False
            return self._chance.uniform(*SERVED_SECONDS)
        self._is_paused = True  # also if nobody says that it was done
        self._set_paused(True)
        self._ledger.write("paused")
        return self._chance.uniform(*PAUSED_SECONDS)

    def resume(self) -> None:
        """Leave the queue as it should be after the load."""
        self._ledger.write("resuming")
        self._set_paused(False)

    def _set_paused(self, paused: bool) -> None:
        Queue.objects.filter(name="pausing").update(paused=paused)
