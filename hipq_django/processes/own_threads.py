"""The threads of a process besides those of handlers, each with its own connection."""

from __future__ import annotations

import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import closing
from typing import Any

from django.db import Error, connections

from hipq_django import events
from hipq_django.conf.instances import InstanceSettings
from hipq_django.database import notify
from hipq_django.database.errors import said_of
from hipq_django.models import Worker
from hipq_django.processes.connections import (
    bound_waits,
    look_after,
    look_after_own,
    renew_broken,
)
from hipq_django.processes.outage import BackOff
from hipq_django.scheduler.batch import BatchScheduler

PROOF_SECONDS = 3.0
"""How long a worker's message to itself may take; a pooler that shares connections drops it."""


class OwnThread(ABC):
    """Executes `_run` from `open` on, until it notices that `close` was called."""

    def __init__(self, name: str, using: str) -> None:
        self.using = using
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._main, name=f"hipq-{name}", daemon=True)

    def open(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Tell the thread to stop."""
        self._stop.set()

    def _main(self) -> None:
        look_after_own(self.using)
        try:
            self._run()
        finally:
            connections.close_all()

    @abstractmethod
    def _run(self) -> None:
        """Do it."""


def log_failure(event: str, error: Exception, **fields: Any) -> None:
    """Log why a thread could not do its work this time; it goes on whatever that was."""
    if isinstance(error, Error):
        events.warning(event, said_of(error), **fields)
    else:  # a fault of the code
        events.error(event, exception=error, **fields)


class Listener(OwnThread):
    """Listens for the messages of `notify`, and calls `wake` with the name of the queue with work.

    The name is empty if it may be any of the worker's queues. Polling goes on beside it.
    """

    def __init__(
        self, worker: Worker, config: InstanceSettings, wake: Callable[[str], None]
    ) -> None:
        super().__init__("listener", config.database)
        self._config = config
        self._worker = worker
        self._wake = wake
        self.is_listening = False
        """Whether messages are known to arrive; else the worker must poll more often."""

    def open(self) -> None:
        """Start the thread, if the database has such messages and the setting allows them."""
        if self._config.notify and notify.has_messages(self.using):
            super().open()

    def _run(self) -> None:
        back_off = BackOff()
        while not self._stop.is_set():
            try:
                if not self._listen(back_off):
                    break
            except Exception as error:
                log_failure("listening_failed", error)
            self.is_listening = False
            connections.close_all()
            self._stop.wait(back_off.next_seconds())

    def _listen(self, back_off: BackOff) -> bool:
        """Listen until stopped; return False if messages do not arrive."""
        connection = connections[self.using]
        notify.listen(connection, self._config.name)
        driver: Any = connection.connection
        with connection.wrap_database_errors:
            if not self._is_heard(driver):
                events.warning(
                    "notify_does_not_arrive",
                    "as behind a pooler that shares connections between transactions; the worker "
                    f"polls instead. To skip this test, set HIPQ[{self._config.name!r}]['NOTIFY'] "
                    "= False.",
                )
                return False
            back_off.reset()
            self.is_listening = True
            self._wake("")
            while not self._stop.is_set():
                for message in driver.notifies(timeout=1.0):
                    if self._worker.is_for(message.payload):
                        self._wake(message.payload)
        return True

    def _is_heard(self, driver: Any) -> bool:
        """Whether a message that is sent on another connection arrives on this one."""
        proof = str(uuid.uuid4())
        with closing(connections[self.using].copy()) as other:
            look_after(other)
            notify.send(other, self._config.name, proof)
        messages = driver.notifies(timeout=PROOF_SECONDS)
        return any(message.payload == proof for message in messages)


class ResultWriter(OwnThread):
    """Writes large batches of results while the scheduler claims the next jobs.

    For databases with several writers at a time. It is idle unless hundreds of results come at
    once. Results that it cannot write go back to the scheduler, which tries next and reports the
    error. `wake` is called when it has written.
    """

    def __init__(self, scheduler: BatchScheduler, wake: Callable[[], None]) -> None:
        super().__init__("writer", scheduler.using)
        self._scheduler = scheduler
        self._batch = scheduler.batch
        self._wake = wake
        self._asked = threading.Event()
        self._is_well = True
        self._patience_seconds = scheduler.config.silence_seconds

    def ask(self) -> None:
        """Let it write results; they are left to it while it works."""
        if self._is_well:
            self._batch.hand_to_writer()
        self._asked.set()

    def close(self) -> None:
        """Stop it after the results that it is writing; the scheduler writes the rest.

        If a receiver of a signal hangs in it, it is left behind: Python cannot interrupt it there.
        """
        super().close()
        self._asked.set()
        self._thread.join(self._patience_seconds)
        self._batch.take_from_writer()

    def _run(self) -> None:
        back_off = BackOff()
        bound_waits(self.using)
        while self._asked.wait() and not self._stop.is_set():
            self._asked.clear()
            try:
                renew_broken(self.using)
                while self._scheduler.write_lease(self._batch.lease_to_writer()):
                    self._wake()
                back_off.reset()
                self._is_well = True
            except BaseException as error:  # whatever it is, the results are not left to it
                self._is_well = False
                self._batch.leave_to_scheduler()
                events.debug("results_not_written", exception=error)
                connections[self.using].close()
                self._stop.wait(back_off.next_seconds())
            self._wake()
