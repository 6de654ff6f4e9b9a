"""Which signals are one more word to stop."""

from __future__ import annotations

from signal import SIGHUP, SIGINT, SIGTERM, SIGUSR1

import pytest

from hipq_django.processes.stop_signals import counts


@pytest.mark.parametrize(
    ("numbers", "stops"),
    [
        ([SIGHUP], 1),
        ([SIGHUP, SIGHUP], 1),
        ([SIGTERM, SIGHUP], 1),
        ([SIGHUP, SIGTERM], 2),
        ([SIGINT, SIGINT], 2),
        ([SIGUSR1, SIGHUP], 1),
    ],
)
def test_a_hangup_counts_only_as_the_first(numbers: list[int], stops: int) -> None:
    told = 0
    for number in numbers:
        told += counts(number, told)

    assert told == stops
