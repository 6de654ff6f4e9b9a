"""The components of the measured flows."""

from __future__ import annotations

from typing import Any

from benchmarks.measuring.handlers import handle
from hipq_django import flow


def _step(name: str) -> Any:
    """Return the component of one step: it handles a message and passes it on."""

    @flow.component(name)
    def step(message: Any) -> Any:
        handle(message["kind"], message["number"])
        return message

    return step


STEPS = ("bench.first", "bench.second", "bench.third")

for _name in STEPS:
    _step(_name)


@flow.component("bench.stamps")
def stamps(message: Any) -> Any:
    """Write down when it was reached: of each message the numbers follow each other."""
    handle("stamp", message["number"])
    return {**message, "number": message["number"] + 1}
