"""The worker as process 1 of a container, in a namespace of its own."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

UNSHARE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]

CODE = """
import os, signal, subprocess, sys, time
from hipq_django.processes.first_process import go_on_below_process_1

go_on_below_process_1()
subprocess.run(["sh", "-c", "sleep 0.1 & exit 0"])
ours, deadline = {"1", str(os.getpid())}, time.monotonic() + 20
while left := {name for name in os.listdir("/proc") if name.isdigit()} - ours:
    if time.monotonic() > deadline:
        sys.exit(f"left: {left}")
    time.sleep(0.02)
signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
print(os.getppid(), flush=True)
signal.pause()
"""


def can_unshare() -> bool:
    try:
        return not subprocess.run([*UNSHARE, "true"], check=False, capture_output=True).returncode
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not can_unshare(), reason="only root may make a namespace of processes")
def test_process_1_waits_for_orphans_and_passes_on_signals_and_the_exit_code() -> None:
    command = [*UNSHARE, sys.executable, "-c", CODE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as outer:
        assert outer.stdout is not None
        assert outer.stdout.readline() == "1\n"
        [first] = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()

        subprocess.run(["kill", f"-{signal.SIGTERM.value}", first], check=True)

        assert outer.wait(20) == 7
