"""What handlers write into the ledger."""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from chaos.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hipq_django.models import Job


@cache
def ledger() -> Ledger:
    """Return the ledger of this process."""
    return Ledger(Path(os.environ["CHAOS_LEDGER"]))


@contextmanager
def noted(job: Job, begin: str = "begin", end: str = "end") -> Iterator[None]:
    """Write down that a handler begins, and that it ends, however it does."""
    key, bank = job.job_data["key"], job.job_data.get("bank", "")
    ledger().write(begin, key, job.attempt, bank=bank, delay=job.job_data.get("delay", 0))
    try:
        yield
    finally:
        ledger().write(end, key, job.attempt)
