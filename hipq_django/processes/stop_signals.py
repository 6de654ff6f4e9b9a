"""The operating system's signals."""

from __future__ import annotations

import atexit
import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from math import inf
from select import select
from typing import Any

from hipq_django import events

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""The signals that tell a process to stop, all alike; SIGHUP comes when a terminal closes."""

ENDED_ITSELF = 5
"""The exit code of a process that has ended itself, because something does not return."""

LAST_RESORT_SECONDS = 8.0
"""How long a process that was told to stop for the second time may take."""


def on_stop_signals(stop: Callable[[], None]) -> None:
    """Call `stop` at each of these signals; only the main thread may ask for that."""
    if threading.current_thread() is not threading.main_thread():
        return

    def receive(_number: int, _frame: Any) -> None:
        stop()

    for number in STOP_SIGNALS:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # as by `nohup`
            signal.signal(number, receive)
    _let_go_of_forks()


@cache
def _let_go_of_forks() -> None:
    """Let the processes that handlers fork have signals of their own.

    Else one that is told to end would take it for a word to this process, and go on.
    """
    os.register_at_fork(after_in_child=_own_no_signals)


def _own_no_signals() -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


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
    stops, ends = 0, inf
    while stops < 2:
        seconds = ends - time.monotonic()  # other signals come too, and must not prolong it
        is_told, _, _ = select([reader], [], [], None if seconds == inf else max(0.0, seconds))
        if not is_told:
            break
        stops += sum(number in STOP_SIGNALS for number in os.read(reader, 64))
        if stops and ends == inf:
            note_told(drain_seconds)
            ends = inf if drain_seconds is None else time.monotonic() + drain_seconds
    end_in_any_case()


@cache
def note_told(drain_seconds: float | None) -> None:
    """Log once that this process was told to stop, also if a pass hangs that hears of nothing."""
    bound = "" if drain_seconds is None else f", for {drain_seconds:g} s at most"
    sentence = f"it finishes what is running{bound}; a second signal ends it at once"
    log_apart(events.info, "told_to_stop", sentence)


def end_in_any_case() -> None:
    """End the process if it has not ended a few seconds from now."""
    time.sleep(LAST_RESORT_SECONDS)
    log_apart(events.critical, "forced_exit", "it was told to stop at once, and did not")
    os._exit(1)


def log_apart(log: Callable[..., None], event: str, sentence: str, **fields: Any) -> None:
    """Log in a thread of its own: one that hangs may hold the lock of the log."""
    fields["pid"] = os.getpid()
    speaking = threading.Thread(target=log, args=[event, sentence], kwargs=fields, daemon=True)
    speaking.start()
    speaking.join(1.0)


END_SECONDS = 5.0
"""How long functions of `atexit` and threads that handlers have started may take at the end."""


def leave(code: int = 0, *, at_once: bool = True) -> None:
    """End the process soon, whatever handlers have left behind; at once: wait for no thread.

    The functions of `atexit` come first: Python would wait for threads before, perhaps for ever.
    """
    # Now: Python may start no thread while it ends. And somebody may hold the lock of the log.
    threading.Thread(target=_name_threads, args=[code], name="hipq-end", daemon=True).start()
    faulthandler.dump_traceback_later(END_SECONDS + 1, exit=True, file=2)
    atexit._run_exitfuncs()
    if at_once:
        os._exit(code)


def _name_threads(code: int) -> None:
    time.sleep(END_SECONDS)
    # Whether they are daemons says nothing: Python waits for those of executors all the same.
    threads = [one for one in threading.enumerate() if one is not threading.main_thread()]
    names = [thread.name for thread in threads if not thread.name.startswith("hipq-")]
    left = ",".join(names) or "none, but a function of atexit"
    events.warning("threads_left", "it ends without them", pid=os.getpid(), threads=left)
    os._exit(code)


def leave_fork(error: BaseException | None) -> None:
    """End a process that a handler has forked, as a program ends that has raised `error`, or not.

    Without what Python does at its exit: that would wait for threads which this process lacks.
    """
    code = error.code if isinstance(error, SystemExit) else error
    with suppress(Exception):
        if error is not None and not isinstance(error, SystemExit):
            sys.excepthook(type(error), error, error.__traceback__)
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code & 0xFF if isinstance(code, int) else int(code is not None))
