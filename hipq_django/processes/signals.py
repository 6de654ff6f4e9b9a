"""The operating system's signals."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def on_stop_signals(stop: Callable[[], None]) -> None:
    """Call `stop` at each SIGTERM or SIGINT; only the main thread may ask for that."""
    if threading.current_thread() is not threading.main_thread():
        return

    def receive(_number: int, _frame: Any) -> None:
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, receive)
