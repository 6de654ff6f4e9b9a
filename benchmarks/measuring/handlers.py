"""What a job does, the same in every system; a job is a kind and a number.

"noop" does nothing, "stamp" writes down when it began, "wait" asks a server on this machine that
takes 20 ms to answer. "tick" writes down when the job of the present second began, in systems that
do not tell a job when it was due. "raise" and "raise_thrice" raise; the one is given up, the other
tried three times at once. All are counted, each time they run.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from functools import cache
from pathlib import Path

from benchmarks.measuring.tally import Stamps, Tally

KINDS = ("noop", "stamp", "wait", "tick", "raise", "raise_thrice")
ANSWER_BYTES = 64


def folder() -> Path:
    """Return the folder of this run, where handlers write."""
    return Path(os.environ["BENCH_FOLDER"])


@cache
def tally() -> Tally:
    """Return the run's tally."""
    return Tally(folder())


@cache
def stamps() -> Stamps:
    """Return the run's stamps."""
    return Stamps(folder())


class DeclinedError(Exception):
    """What jobs raise that are to fail."""


def handle(kind: str, number: int) -> None:
    """Do one job."""
    if kind.startswith("raise"):
        tally().count()
        raise DeclinedError(f"number {number}")
    if kind == "stamp":
        stamps().stamp(number)
    elif kind == "tick":
        stamps().stamp(int(time.time()) % Stamps.NUMBERS)
    elif kind == "wait":
        with socket.create_connection(_address()) as connection:
            connection.recv(ANSWER_BYTES)
    tally().count()


async def handle_async(kind: str, number: int) -> None:
    """Do one job without holding a thread."""
    if kind == "wait":
        reader, writer = await asyncio.open_connection(*_address())
        await reader.read(ANSWER_BYTES)
        writer.close()
        tally().count()
    else:
        handle(kind, number)


@cache
def _address() -> tuple[str, int]:
    return "127.0.0.1", int((folder() / "port").read_text())
