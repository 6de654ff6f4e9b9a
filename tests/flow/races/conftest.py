"""What tests of flows with several connections share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.db.models import QuerySet

from hipq_django.conf.instances import get_instance
from hipq_django.database import built_once, isolation
from hipq_django.flow.models import Wake
from hipq_django.flow.runs import dispatching
from hipq_django.scheduler import companions
from tests.concurrency.conftest import conform, session
from tests.hand_worker import HandWorker
from tests.job_life.actors import END, Actors
from tests.job_life.steps import Steps

__all__ = ["session"]

ROUNDS = 50


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    conform(Path(__file__).parent, items)


class FlowWorker(HandWorker):
    """A worker that a test moves by hand, which also works until all nodes rest."""

    def run_until_idle(self) -> None:
        """Work until nothing is due and no node has a wake."""
        for _ in range(ROUNDS):
            has_dispatched = Wake.objects.exists()  # the run may be claimed by the next pass only
            if not (self.work() or has_dispatched or Wake.objects.exists()):
                return
        raise AssertionError(f"nodes that never rest: {list(Wake.objects.values())}")


@pytest.fixture
def worker(transactional_db: None) -> FlowWorker:
    return FlowWorker()


@pytest.fixture
def steps(transactional_db: None) -> Iterator[Steps]:
    """Steps of three connections, each of which stops where the test says."""
    with Actors(3) as actors:
        yield Steps(actors, lambda _: None, lambda: None)


def end_all(steps: Steps) -> None:
    """Let all steps come to their ends, one after the other."""
    while stopped := steps.stopped:
        steps.go_on(stopped[0], END)
    assert not list(steps)


@pytest.fixture
def dispatch() -> Callable[[], int]:
    return lambda: dispatching.dispatch(get_instance("default"))


@pytest.fixture(autouse=True)
def deferred_results_are_tried_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "LEAST_PAUSE", 0.0)
    monkeypatch.setattr(isolation, "MOST_PAUSE", 0.0)
    monkeypatch.setattr(isolation, "FAULT_PAUSE", 0.0)
    monkeypatch.setattr(isolation, "MOST_SPENT", 1.0)
    monkeypatch.setattr(companions, "LONGEST_PAUSE", 0.0)


@pytest.fixture
def nobody_waits(transactional_db: None) -> Iterator[None]:
    """The test's own connection fails where it would wait for a lock."""
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '2s'")
    yield
    with connection.cursor() as cursor:
        cursor.execute("RESET lock_timeout")


# The proof that a lock decides a race: without it the same steps end otherwise


def plain_select(rows: QuerySet[Any], **_: Any) -> QuerySet[Any]:
    """Stand where rows were locked."""
    return rows


def plain_list(rows: QuerySet[Any], **_: Any) -> list[Any]:
    """Stand where rows were locked and read."""
    return list(rows)


def no_lock(*_: Any, **__: Any) -> str:
    """Stand for the end of a statement that locks rows."""
    return ""


PLAIN: dict[str, Callable[..., Any]] = {
    "locked": plain_select,
    "for_key_share": plain_list,
    "row_lock": no_lock,
}


def decided_by(
    *places: str, without: Callable[..., Any] | str | None = None
) -> pytest.MarkDecorator:
    """Run a test twice: as it is, and with what stands at these places taken out.

    The test is told by `holds` which of both it is. `without` stands in place of what is no lock.
    """
    taken_out = [
        (place if place.startswith("hipq_django.") else f"hipq_django.flow.{place}", without)
        for place in places
    ]
    return pytest.mark.parametrize(
        "holds", [[], taken_out], indirect=True, ids=["locked", "unlocked"]
    )


def nothing(*_: Any, **__: Any) -> None:
    """Stand for what is done at that place."""


@pytest.fixture
def holds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if request.param:
        monkeypatch.setattr(built_once, "built", {})  # else what is taken out would be in them
    for place, without in request.param:
        monkeypatch.setattr(place, without or PLAIN[place.rpartition(".")[2]])
    return not request.param
