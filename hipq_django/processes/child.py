"""A worker process under a supervisor. Imports no models: it runs before Django's set-up."""

import logging
import os

import django

from hipq_django.processes.logs import set_up_logging
from hipq_django.processes.options import WorkerOptions
from hipq_django.processes.signals import on_stop_signals


def run_child(options: WorkerOptions) -> None:
    """Run one worker in a process of its own."""
    django.setup()
    set_up_logging(options.verbosity)
    from hipq_django.processes.worker import WorkerProcess

    process = WorkerProcess(options)
    on_stop_signals(process.stop)
    process.run()
    leave()


def leave() -> None:
    """End the process at once: handlers that were let go must not hold it back."""
    logging.shutdown()
    os._exit(0)
