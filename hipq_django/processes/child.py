"""A worker process under a supervisor. Imports no models: it runs before Django's set-up."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING

import django

from hipq_django.processes.logs import set_up_logging
from hipq_django.processes.stop_signals import end_at_the_second, on_stop_signals

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from hipq_django.processes.options import WorkerOptions

ENDED = 0
"""What a child says last if it ends because it should; whatever ends it, it has an exit code."""


def run_child(options: WorkerOptions, supervisor: Connection) -> None:
    """Run one worker in a process of its own; tell the supervisor each row that it registers."""
    django.setup()
    set_up_logging(options.verbosity)
    from hipq_django.processes.worker import WorkerProcess

    def tell(word: int) -> None:
        with suppress(OSError):  # who is gone need not be told
            supervisor.send(word)

    process = WorkerProcess(options, registered=tell)
    end_at_the_second()
    on_stop_signals(process.stop)
    process.run()
    tell(ENDED)
    leave()


def leave() -> None:
    """End the process at once: handlers that were let go must not hold it back."""
    logging.shutdown()
    os._exit(0)
