"""A duty that fails is shown to operators, until it succeeds again."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from hipq_django.conf.instances import get_instance
from hipq_django.maintenance.duties import Duties, Duty
from hipq_django.models import Worker
from hipq_django.monitoring import overview
from hipq_django.processes.heartbeat import Heartbeat
from hipq_django.processes.registered import Troubles
from hipq_django.scheduler import companions
from tests.declaring import Declare
from tests.factories import WorkerFactory

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]

PLAIN = "plain"
"""An instance without job types, so without sensitive fields."""

LIST = "admin:hipq_worker_changelist"


class Watched:
    """A worker whose one duty fails for as long as it has an error; each round is followed by a
    beat."""

    def __init__(self, instance: str = PLAIN) -> None:
        self.error: Exception | None = ValueError("no zone 4111\nDETAIL: card 4111")
        self.troubles = Troubles(instance, "default")
        self.worker = WorkerFactory.create()
        self._heart = Heartbeat(
            self.worker, lambda: {"troubles": self.troubles.shown}, lambda: None
        )
        self._duties = Duties("default", [Duty("rank", 1, self._rank)], self.troubles.tell)

    def _rank(self) -> int:
        if self.error:
            raise self.error
        return 0

    def work(self) -> dict[str, Any]:
        """Return what its row says after a round."""
        self._duties.run(all_of_it=True, waits=False)
        self._heart.beat()
        troubles: dict[str, Any] = Worker.objects.get(pk=self.worker.pk).troubles
        return troubles


def test_the_row_says_which_duty_fails_since_when_and_why() -> None:
    watched = Watched()

    first, second = watched.work(), watched.work()
    [shown] = overview.take(get_instance()).workers[0].troubles
    watched.error = None

    assert first["rank"]["reason"] == "ValueError: no zone 4111"
    assert second == first  # since the first failure
    assert (shown.name, shown.reason) == ("rank", "ValueError: no zone 4111")
    assert 0 <= shown.seconds < 60
    assert watched.work() == {}


def test_nothing_is_quoted_where_fields_are_sensitive(declare: Declare) -> None:
    declare("charge", sensitive=["card"])(lambda job: None)

    assert Watched("default").work()["rank"]["reason"] == "ValueError, see the worker's log"


def test_the_page_of_workers_shows_it(admin_client: Client) -> None:
    watched = Watched()
    watched.work()
    during = admin_client.get(reverse(LIST)).content.decode()
    watched.error = None
    watched.work()

    assert "no zone 4111" in during
    assert "no zone 4111" not in admin_client.get(reverse(LIST)).content.decode()


class Companion:
    """One that raises for as long as it is ill."""

    is_ill = True

    def sweep(self, config: Any) -> int:
        """Find what was left."""
        if self.is_ill:
            raise ZeroDivisionError("no such node")
        return 0


def test_a_step_of_a_companion_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    troubles, companion = Troubles(PLAIN, "default"), Companion()
    monkeypatch.setattr(companions, "companions", lambda: {"flow": companion})
    monkeypatch.setattr(companions, "LONGEST_PAUSE", 0.0)
    steps = companions.steps_left_alone()
    sweep = Duty("sweep", 1, partial(companions.sweep, get_instance(), steps), left_alone=steps)
    duties = Duties("default", [sweep], troubles.tell)

    duties.run(all_of_it=True, waits=False)
    during = troubles.shown
    companion.is_ill = False
    duties.run(all_of_it=True, waits=False)

    assert during["sweep"]["reason"] == "step=sweep left alone, see the worker's log"
    assert troubles.shown == {}
