"""One run: a runner in a process of its own, with a time limit, and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from benchmarks.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

MARK = "HIPQ_BENCH_RUN"
"""The variable that every process of a run inherits, and is found by when the run is over."""


@dataclass
class Outcome:
    """What came of a run: figures and notes, and an error if it failed."""

    figures: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    samples: list[dict[str, float]] = field(default_factory=list)
    error: str = ""
    seconds: float = 0.0


def run(
    command: list[str],
    sizes: Mapping[str, Any],
    environment: Mapping[str, str],
    limit_seconds: float,
    log: Path,
    root: Path = ROOT,
) -> Outcome:
    """Run a runner and return what it printed; what it leaves behind is killed.

    It runs the code in `root`, whatever is installed.
    """
    mark, began = uuid4().hex, time.monotonic()
    with TemporaryDirectory(prefix="hipq-bench-") as folder:
        variables = {**_plain_environment(), MARK: mark, "BENCH_FOLDER": folder}
        variables["DATABASE_URL"] = f"sqlite:///{folder}/jobs.sqlite3"
        variables.update(environment, PYTHONPATH=str(root))
        process = subprocess.Popen(
            [*command, json.dumps(sizes)],
            cwd=root,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        outcome = _outcome(process, limit_seconds, mark, log)
    outcome.seconds = time.monotonic() - began
    return outcome


def _plain_environment() -> dict[str, str]:
    """Return our own variables without the addresses of stores: each run is given its own."""
    return {name: value for name, value in os.environ.items() if not name.endswith("_URL")}


def _outcome(process: subprocess.Popen[str], limit: float, mark: str, log: Path) -> Outcome:
    error = ""
    try:
        output, complaints = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        error = f"took more than {limit:.0f} s"
        kill_marked(mark)
        process.kill()
        output, complaints = process.communicate()
    finally:
        kill_marked(mark)
    log.write_text(output + complaints)
    if not error and process.returncode:
        error = reason(complaints) or f"left with {process.returncode}"
    return parsed(output, error)


def parsed(output: str, error: str = "") -> Outcome:
    """Return what a runner's lines say; lines that are not ours are a system's own talk."""
    outcome = Outcome(error=error)
    for line in output.splitlines():
        try:
            said = json.loads(line)
        except ValueError:
            continue
        if isinstance(said, dict) and "figure" in said:
            outcome.figures[said["figure"]] = float(said["value"])
        elif isinstance(said, dict) and "note" in said:
            outcome.notes.append(said["note"])
        elif isinstance(said, dict) and "sample" in said:
            outcome.samples.append(said["sample"])
    return outcome


def reason(complaints: str) -> str:
    """Return the last line that names an error, else the last one."""
    lines = complaints.strip().splitlines()
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
    return (errors or lines or [""])[-1][:500]


def kill_marked(mark: str) -> None:
    """Kill every process that has inherited the mark; only where there is /proc."""
    wanted = f"{MARK}={mark}".encode()
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if wanted in environ.read_bytes().split(b"\0"):
                os.kill(int(environ.parent.name), signal.SIGKILL)
        except (OSError, ValueError):
            continue  # another user's process, or it is gone
