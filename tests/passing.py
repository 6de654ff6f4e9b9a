"""A steady clock that a test puts forward."""

from __future__ import annotations

import time

import pytest

from hipq_django import steady


class Passing:
    """Lets time pass for all that goes by the clock that no step moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 0.0
        real = time.clock_gettime
        monkeypatch.setattr(time, "clock_gettime", lambda clock: real(clock) + self._of(clock))

    def _of(self, clock: int) -> float:
        return self.seconds if clock == steady._CLOCK else 0.0
