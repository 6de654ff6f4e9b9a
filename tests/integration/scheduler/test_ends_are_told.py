"""Who is told that jobs have ended, and how often a rare kind of row is looked for."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace

import pytest

from hipq_django import extensions
from hipq_django.database import presence
from hipq_django.database.presence import ABSENT_SECONDS, Presence
from hipq_django.extensions import Extension

pytestmark = pytest.mark.django_db(transaction=True)


class Following(Extension):
    def may_follow(self, using: str) -> bool:
        return True


class Failing(Following):
    def jobs_ended(self, ids: Collection[int], using: str) -> None:
        raise ZeroDivisionError


class Listening(Following):
    def __init__(self) -> None:
        self.heard: list[Collection[int]] = []

    def jobs_ended(self, ids: Collection[int], using: str) -> None:
        self.heard.append(ids)


def test_an_extension_that_fails_hides_no_end_from_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    listening = Listening()
    monkeypatch.setattr(extensions, "registered", [Failing(), listening])

    extensions.note_ended([1], "default")

    assert listening.heard == [[1]]
    assert caplog.text.count("event=end_hook_failed") == 1


@pytest.mark.parametrize(
    ("looks", "asked"),
    [([True, True], [True, True, True, True]), ([False], [True, False, True, True])],
)
def test_rows_that_are_absent_are_looked_for_once_a_second(
    looks: list[bool], asked: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    now, calls = [100.0], []
    monkeypatch.setattr(presence, "time", SimpleNamespace(monotonic=lambda: now[0]))
    rows = Presence(lambda using: calls.append(using) or looks[0])  # type: ignore[func-returns-value]  # None

    def is_asked_after(seconds: float) -> bool:
        now[0] += seconds
        before = len(calls)
        rows("default")
        return len(calls) > before

    first = [is_asked_after(0), is_asked_after(ABSENT_SECONDS - 0.01), is_asked_after(0.02)]
    rows.note("default")
    assert [*first, is_asked_after(0)] == asked
