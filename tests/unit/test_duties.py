"""How long a worker's duties rest."""

from __future__ import annotations

import pytest

from hipq_django.maintenance.duties import MOVING_SHARE, SHARE, Duty


def duty(seconds: float = 1) -> Duty:
    return Duty("rank", seconds, int)


def test_a_duty_that_took_long_once_is_done_again_at_its_interval() -> None:
    """The database stood still meanwhile, or the whole process was suspended."""
    stood_still = duty()

    assert stood_still.rest(0.001, 0) == 1
    assert stood_still.rest(600.0, 0) == 1
    assert stood_still.rest(0.001, 0) == 1


def test_a_duty_that_always_takes_long_rests_for_a_share_of_the_time() -> None:
    slow = duty()
    slow.rest(0.3, 0)

    assert slow.rest(0.3, 0) == pytest.approx(0.3 / SHARE)


def test_a_duty_that_has_moved_something_is_done_again_soon() -> None:
    busy = duty(10)
    busy.rest(0.1, 500)

    assert busy.rest(0.1, 500) == pytest.approx(0.1 / MOVING_SHARE)
    assert busy.rest(600.0, 500) <= 1
