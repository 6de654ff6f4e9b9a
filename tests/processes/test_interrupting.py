"""Time in which a process is suspended is not that of the code that it was executing."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from textwrap import dedent

import pytest

pytestmark = pytest.mark.embedded

SECONDS = 0.9
"""After this long a call is interrupted."""

LOOK_SECONDS = SECONDS / 3
"""So often the process looks at its call."""

CALLING = dedent(f"""
    import os, sys, threading
    from hipq_django.domain.bounded_calls import bounded
    from hipq_django.processes.interrupting import Interrupter

    interrupter, ended = Interrupter({SECONDS}, float(sys.argv[1])), threading.Event()

    def say(what):
        os.write(1, f"{{what}}\\n".encode())  # whole: two threads speak

    def look():
        while not ended.wait({LOOK_SECONDS}):
            interrupter.look()
            say("look")

    interrupter.open()
    threading.Thread(target=look, daemon=True).start()
    try:
        bounded(lambda: sys.stdin.readline())
        say("returned")
    except KeyboardInterrupt as error:
        say(error)
    """)


@pytest.fixture
def calling(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """A process that waits for a line in a call that is interrupted if it takes long."""
    interval = getattr(request, "param", LOOK_SECONDS)
    with subprocess.Popen(
        [sys.executable, "-c", CALLING, str(interval)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _said(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def _said_at_last(process: subprocess.Popen[str]) -> str:
    return next(said for said in iter(lambda: _said(process), "") if said != "look")


def test_a_call_that_does_not_return_is_interrupted(calling: subprocess.Popen[str]) -> None:
    assert _said_at_last(calling) == f"did not return within {SECONDS:g} s"


# It counts ten looks for each, so that the process has many seconds to go on in.
@pytest.mark.parametrize("calling", [LOOK_SECONDS / 10], indirect=True)
def test_a_call_in_which_the_process_was_suspended_goes_on(calling: subprocess.Popen[str]) -> None:
    assert _said(calling) == "look"
    calling.send_signal(signal.SIGSTOP)
    time.sleep(2 * SECONDS)  # what the test is about: it passes, and nobody can see it
    calling.send_signal(signal.SIGCONT)
    assert _said(calling) == "look"

    assert calling.stdin
    calling.stdin.write("\n")
    calling.stdin.flush()

    assert _said_at_last(calling) == "returned"
