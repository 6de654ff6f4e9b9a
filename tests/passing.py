"""A steady clock that a test puts forward."""

from __future__ import annotations

import sys

import pytest

from hipq_django.database import clock


class Passing:
    """Lets time pass for all that goes by the clock that no step moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seconds = 0.0
        real = clock.steady
        for name, module in list(sys.modules.items()):
            if name.startswith(("hipq_django.", "tests.")) and vars(module).get("steady") is real:
                monkeypatch.setattr(module, "steady", lambda: real() + self.seconds)
