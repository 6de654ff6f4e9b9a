"""Large messages: how many lie there does not say how much memory a run needs."""

from __future__ import annotations

import random
import tracemalloc
from typing import Any

import pytest

import hipq_django as hipq
from hipq_django import flow
from hipq_django.flow import connecting, testing
from hipq_django.flow.models import Message, StagedJob
from hipq_django.flow.runs import run as runs
from hipq_django.flow.runs.loading import FIRST_PAGE
from hipq_django.flow.statements import LARGE
from hipq_django.flow.values import MAX_VOLUME
from tests.declaring import Declare
from tests.testapp.flows import Script

pytestmark = [pytest.mark.conformance, pytest.mark.django_db]

MEGABYTE = 1_000_000


def text(number: int, size: int = 2 * LARGE) -> str:
    """Return a text that PostgreSQL cannot make much smaller."""
    return random.Random(number).randbytes(size // 2).hex()


def test_small_and_large_messages_are_seen_and_read_in_their_order(script: Script) -> None:
    given = [text(n) if n % 3 else n for n in range(300)]
    seen, read = list[Any](), list[Any]()

    def perform(run: Any) -> None:
        seen.append((run.item.size, run.item.has_data, run.item.peek(3)))
        read.extend(run.each("item"))

    script.perform = perform
    flow.start("t.scripted", data={"item": given})
    testing.drain()

    assert seen[0] == (300, True, given[:3])
    assert read == given
    assert not Message.objects.exists()


def test_a_run_holds_no_more_of_them_than_it_needs(script: Script) -> None:
    count = 24
    node = flow.start("t.scripted", run=False)
    for number in range(count):
        node.inputs["item"].write(text(number, MEGABYTE))
    peaks: list[int] = []

    def perform(run: Any) -> None:
        lengths = [len(item) for item in run.each("item")]
        peaks.append(tracemalloc.get_traced_memory()[1])
        assert set(lengths) == {MEGABYTE}

    script.perform = perform
    tracemalloc.start()
    try:
        testing.drain(timeout=60)
    finally:
        tracemalloc.stop()

    assert max(peaks) < 10 * MEGABYTE
    assert len(peaks) >= count * MEGABYTE // MAX_VOLUME
    assert not Message.objects.exists()


def test_a_run_that_has_written_much_leaves_the_rest_to_the_next(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "MAX_VOLUME", 100_000)
    outputs: list[int] = []

    def perform(run: Any) -> None:
        outputs.append(0)
        for item in run.each("item"):
            run.out.write(text(item, 30_000))
            outputs[-1] += 1

    script.perform = perform
    node = flow.start("t.scripted", data={"item": range(10)})
    testing.drain()

    assert outputs == [4, 4, 2]
    assert list(node.outputs["out"]) == [text(n, 30_000) for n in range(10)]


@pytest.mark.parametrize("taken", [[2], [*range(FIRST_PAGE + 1)]], ids=["one", "all"])
def test_large_messages_that_somebody_takes_meanwhile_are_passed_over(
    script: Script, taken: list[int]
) -> None:
    count = 4 if len(taken) == 1 else len(taken)
    given = [text(n, MEGABYTE if count == 4 else 2 * LARGE) for n in range(count)]
    node, read = flow.start("t.scripted", run=False), list[Any]()
    node.inputs["item"].write_many(given)
    ids = list(Message.objects.order_by("pk").values_list("pk", flat=True))

    def perform(run: Any) -> None:
        Message.objects.filter(pk__in=[ids[n] for n in taken]).delete()
        read.extend(run.each("item"))

    script.perform = perform
    testing.drain()

    assert read == [text for n, text in enumerate(given) if n not in taken]
    assert (node.status, Message.objects.exists()) == ("completed", False)


@pytest.fixture
def give_back(declare: Declare) -> None:
    """A job type that returns what it is given."""

    @declare("give_back")
    def give_back(job: hipq.Job) -> Any:
        return job.job_data


STAGE: dict[str, Any] = {
    "nodes": {"give_back": {"jobs": "give_back", "limit": 50}},
    "inputs": {"in": "give_back.in"},
    "outputs": {"out": "give_back.out", "failed": "give_back.error"},
}


@pytest.mark.usefixtures("give_back")
def test_a_stage_hands_on_large_results_by_and_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "MAX_VOLUME", 5 * LARGE)
    root = flow.start(STAGE)
    given = [text(n) for n in range(12)]
    root.inputs["in"].write_many(given)
    testing.drain()

    assert [message["result"] for message in root.outputs["out"]] == given
    assert not StagedJob.objects.exists()
    assert root.status == "completed"


@pytest.mark.parametrize("verb", ["connect", "move_to"])
def test_none_is_moved_where_one_does_not_fit(monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    monkeypatch.setattr(connecting, "PAGE_SIZE", 3)
    node = flow.start("t.sum", run=False)
    target = flow.start("t.wild", run=False, inputs={"n": {"type": "int"}})
    source = node.outputs["out"]
    source.write_many([1, 2, 3, 4, "text"])

    with pytest.raises(flow.PortTypeError):
        getattr(source, verb)(target.inputs["n"])
    assert (source.peek(9), target.inputs["n"].size) == ([1, 2, 3, 4, "text"], 0)
    source.write(6)
    assert target.inputs["n"].size == 0  # nor is it connected
