"""Who is told that jobs have ended, and how often where nobody wants to hear."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace

import pytest

from hipq_django.transitions import outcomes
from hipq_django.transitions.outcomes import QUIET_SECONDS

pytestmark = pytest.mark.django_db(transaction=True)


class Watcher:
    """One whose answer takes a while, by a clock that stands still meanwhile."""

    def __init__(self, seconds: float, *, wants_more: bool) -> None:
        self.now = 100.0
        self.calls = 0
        self._seconds = seconds
        self._wants_more = wants_more

    def __call__(self, ids: Collection[int], using: str) -> bool:
        self.now += self._seconds
        self.calls += 1
        return self._wants_more

    def is_told_after(self, seconds: float) -> bool:
        """Whether it is told when jobs end so long after the last time."""
        self.now += seconds
        before = self.calls
        outcomes.note_ended([1], "default")
        return self.calls > before


@pytest.mark.parametrize(
    ("takes", "pause"), [(0.0, QUIET_SECONDS), (0.05, 1.0), (0.2, 4.0), (30.0, 5.0)]
)
def test_one_that_wants_no_more_is_asked_for_a_twentieth_of_the_time_at_most(
    takes: float, pause: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = _only(Watcher(takes, wants_more=False), monkeypatch)

    assert watcher.is_told_after(0)
    assert not watcher.is_told_after(pause - 0.01)
    assert watcher.is_told_after(0.02)
    outcomes.be_told("default")
    assert watcher.is_told_after(0)


def test_one_that_wants_more_is_always_told(monkeypatch: pytest.MonkeyPatch) -> None:
    watcher = _only(Watcher(0.4, wants_more=True), monkeypatch)

    assert [watcher.is_told_after(0), watcher.is_told_after(0)] == [True, True]


def test_one_that_fails_is_left_in_peace_and_the_others_are_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(ids: Collection[int], using: str) -> bool:
        raise ZeroDivisionError

    watcher = _only(Watcher(0, wants_more=True), monkeypatch)
    monkeypatch.setattr(outcomes, "_watchers", [failing, watcher])

    assert [watcher.is_told_after(0), watcher.is_told_after(QUIET_SECONDS - 0.1)] == [True, True]
    assert caplog.text.count("ERROR") == caplog.text.count("event=watcher_failed") == 1
    assert watcher.is_told_after(0.2)
    assert caplog.text.count("event=watcher_failed") == 2


def _only(watcher: Watcher, monkeypatch: pytest.MonkeyPatch) -> Watcher:
    monkeypatch.setattr(outcomes, "_watchers", [watcher])
    monkeypatch.setattr(outcomes, "_quiet_until", {})
    monkeypatch.setattr(outcomes, "time", SimpleNamespace(monotonic=lambda: watcher.now))
    return watcher
