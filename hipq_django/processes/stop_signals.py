"""The operating system's signals."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from select import select
from typing import Any

from hipq_django import events

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

LAST_RESORT_SECONDS = 8.0
"""How long a process that was told to stop for the second time may take."""


def on_stop_signals(stop: Callable[[], None]) -> None:
    """Call `stop` at each SIGTERM or SIGINT; only the main thread may ask for that."""
    if threading.current_thread() is not threading.main_thread():
        return

    def receive(_number: int, _frame: Any) -> None:
        stop()

    for number in STOP_SIGNALS:
        signal.signal(number, receive)


@contextmanager
def held_back() -> Iterator[None]:
    """Hold back the stop signals for a process that is started here until it can take them."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        take_held_back()


def take_held_back() -> None:
    """Take the stop signals again, first those that came meanwhile."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


@cache
def end_at_the_second(drain_seconds: float | None) -> None:
    """Let a second stop signal end the process in any case, whatever its threads wait for.

    So does the end of `drain_seconds` after the first signal, if there is such a bound. Python runs
    its signal handlers in the main thread, and not while that waits in C code, for example for a
    name server. So a separate thread hears of each signal too.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(
        target=_listen, args=[reader, drain_seconds], name="hipq-last-resort", daemon=True
    ).start()


def _listen(reader: int, drain_seconds: float | None) -> None:
    stops = 0
    while stops < 2:
        is_told, _, _ = select([reader], [], [], drain_seconds if stops else None)
        if not is_told:
            break
        stops += sum(number in STOP_SIGNALS for number in os.read(reader, 64))
    end_in_any_case()


def end_in_any_case() -> None:
    """End the process if it has not ended a few seconds from now."""
    time.sleep(LAST_RESORT_SECONDS)
    last_words = threading.Thread(
        target=events.critical,
        args=["killed_itself", "it was told to stop at once, and did not"],
        kwargs={"pid": os.getpid()},
        daemon=True,
    )
    last_words.start()
    last_words.join(1.0)  # a thread that hangs may hold the lock of the log
    os._exit(1)


def leave() -> None:
    """End the process at once: abandoned handlers must not hold it back."""
    logging.shutdown()
    os._exit(0)
