"""The operating system's signals."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("hipq_django")

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


@cache
def end_at_the_second() -> None:
    """Let a second stop signal end the process in any case, whatever its threads wait for.

    Python runs its signal handlers in the main thread, and not while that waits in C code for a
    name server, say. So a thread of its own hears of each signal too.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_listen, args=[reader], name="hipq-last-resort", daemon=True).start()


def _listen(reader: int) -> None:
    stops = 0
    while stops < 2:
        stops += sum(number in STOP_SIGNALS for number in os.read(reader, 64))
    time.sleep(LAST_RESORT_SECONDS)
    last_words = threading.Thread(
        target=logger.critical,
        args=["process=%s event=killed_itself: told to stop twice, it did not end", os.getpid()],
        daemon=True,
    )
    last_words.start()
    last_words.join(1.0)  # a thread that hangs may hold the lock of the log
    os._exit(1)
