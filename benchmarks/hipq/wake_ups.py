"""Whether a commit wakes workers: the setting NOTIFY."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from django.conf import settings
from django.test import override_settings

from benchmarks.measuring import measurements

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from benchmarks.hipq.runner import HipqRunner
    from benchmarks.measuring.runner import Figures


@contextmanager
def notify(wanted: bool) -> Iterator[None]:
    """Set it in this process, and in the workers that are started meanwhile."""
    changed = {"default": {**settings.HIPQ["default"], "NOTIFY": wanted}}
    os.environ["BENCH_NOTIFY"] = "yes" if wanted else "no"
    try:
        with override_settings(HIPQ=changed):
            yield
    finally:
        del os.environ["BENCH_NOTIFY"]


def measure_polling(runner: HipqRunner, sizes: dict[str, Any]) -> Figures:
    """W5c: the latency where nobody is woken."""
    with notify(False):
        yield from measurements.latency(runner, sizes)
