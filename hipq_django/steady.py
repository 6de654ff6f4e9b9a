"""A clock that no step of the wall clock moves, for what is only ever compared with itself."""

from __future__ import annotations

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Where the platform can tell, the time for which the machine was suspended counts too."""


def steady() -> float:
    """Return seconds since some moment in the past."""
    return time.clock_gettime(_CLOCK)
