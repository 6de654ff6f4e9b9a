"""Which signals are one more word to stop."""

from __future__ import annotations

import subprocess
import sys
from signal import SIGHUP, SIGINT, SIGTERM, SIGUSR1

from hipq_django.processes.stop_signals import TOGETHER_SECONDS, Told

LATER = TOGETHER_SECONDS


def test_a_hangup_counts_only_as_the_first() -> None:
    wrong = []
    for signals, stops in (
        ([(SIGHUP, 0)], 1),
        ([(SIGHUP, 0), (SIGHUP, LATER)], 1),
        ([(SIGTERM, 0), (SIGHUP, 0)], 1),
        ([(SIGTERM, 0), (SIGHUP, LATER)], 1),
        ([(SIGHUP, 0), (SIGTERM, 0)], 1),
        ([(SIGHUP, 0), (SIGTERM, 0), (SIGTERM, 0)], 2),
        ([(SIGHUP, 0), (SIGTERM, LATER)], 2),
        ([(SIGINT, 0), (SIGINT, 0)], 2),
        ([(SIGUSR1, 0), (SIGHUP, 0), (SIGUSR1, 0)], 1),
    ):
        told = Told()
        if sum(told.counts(number, now) for number, now in signals) != stops:
            wrong.append(signals)
    assert not wrong


SENT_TOGETHER = """
import os, signal
from hipq_django.processes.stop_signals import STOP_SIGNALS, on_stop_signals

signal.signal(signal.SIGHUP, signal.SIG_DFL)
calls = []
on_stop_signals(lambda: calls.append(None))
signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
os.kill(os.getpid(), signal.SIGTERM)
os.kill(os.getpid(), signal.SIGHUP)
signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
print(len(calls))
"""


def test_a_hangup_that_comes_with_another_signal_is_no_second_one() -> None:
    """As from systemd with SendSIGHUP; Python calls handlers in the order of the numbers."""
    command = [sys.executable, "-c", SENT_TOGETHER]

    assert subprocess.run(command, capture_output=True, check=True, text=True).stdout == "1\n"
