"""What process 1 of a container has to do: it inherits all whose parents have ended."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

from hipq_django.processes.stop_signals import STOP_SIGNALS


def go_on_below_process_1() -> None:
    """Go on in a child, if this is process 1, and wait there for whoever has ended.

    Else the programs that the tools of handlers have left behind would stay as zombies. Where the
    project has threads already, which a child does not have, nothing is done.
    """
    if os.getpid() != 1 or threading.active_count() > 1:
        return
    worker = os.fork()
    if not worker:
        return

    def pass_on(number: int, _frame: Any) -> None:
        os.kill(worker, number)

    for number in STOP_SIGNALS:
        signal.signal(number, pass_on)
    ended, status = os.wait()
    while ended != worker:
        ended, status = os.wait()
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)
