"""How often a process wakes the workers of a queue."""

import pytest
from hypothesis import given, strategies as st

from hipq_django.database import notify
from hipq_django.database.notify import LONGEST_PAUSE_SECONDS, SHORTEST_PAUSE_SECONDS

KEY = ("default", 1)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify, "_debounces", {})


def spoken(*moments: float) -> list[float]:
    """The moments at which the workers would be woken."""
    return [moment for moment in moments if notify._may_notify(KEY, moment)]


def test_after_a_burst_it_wakes_early_again() -> None:
    burst = spoken(*(number / 1_000 for number in range(2_000)))

    assert spoken(10, 10.1, 10.2)[0] == 10
    assert len(burst) < 10


@given(st.lists(st.floats(0, 0.2), min_size=1, max_size=200))
def test_nothing_is_kept_quiet_for_longer_than_a_worker_looks_often(gaps: list[float]) -> None:
    """Between two wakes, and so between any job and the wake before it, at most the long pause."""
    notify._debounces.clear()
    now, last = 0.0, 0.0
    for number, gap in enumerate(gaps):
        now += gap
        if notify._may_notify(KEY, now):
            assert number == 0 or now >= last + SHORTEST_PAUSE_SECONDS - 1e-9
            last = now
        else:
            assert now - last < LONGEST_PAUSE_SECONDS
