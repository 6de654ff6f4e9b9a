"""What a run has done is done in the order of its code; what it wants for itself is not lost."""

from __future__ import annotations

from typing import Any

import pytest

import hipq_django as hipq
from hipq_django import flow
from hipq_django.flow import testing
from hipq_django.flow.values import Effects, Write
from tests.concurrency.conftest import refuse
from tests.testapp.flows import Double, Script

__all__ = ["refuse"]

pytestmark = pytest.mark.django_db


@pytest.fixture
def parent() -> flow.Node:
    """A node that has not run, with a child to which it may write; that never runs."""
    node = flow.start("t.scripted", run=False)
    node.spawn("child", Double, run=False).pause()
    return node


def test_the_order_holds_over_marks_and_the_wait_for_an_answer(
    script: Script, parent: flow.Node
) -> None:
    parent.inputs["item"].write_many([1, 2])

    def ask(run: Any) -> Any:
        for item in run.each("item"):
            run.out.write(item)
            if item == 1:
                run.out.connect(run.child("child").inputs["number"])
        script.perform = go_on
        run.job.set_key("key")
        return hipq.WAIT

    def go_on(run: Any) -> None:
        run.out.write(3)
        run.out.disconnect(run.child("child").inputs["number"])
        run.out.write(4)

    script.perform = ask
    parent.run()
    testing.drain()
    hipq.complete("t.scripted", "key", None)
    testing.drain()

    assert parent.children["child"].inputs["number"].peek(9) == [1, 2, 3]
    assert parent.outputs["out"].peek(9) == [4]


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_node_whose_end_is_refused_shuts_down_if_it_wanted_to(
    script: Script, attempts: int
) -> None:
    def perform(run: Any) -> None:
        run.terminate()
        run.spawn("child", Double, run=False)
        run.spawn("child", Double, run=False)  # the name is taken

    script.perform = perform
    node = flow.start("t.scripted" if attempts == 2 else "t.scripted_patiently")
    testing.drain(errors=False)

    assert node.status == "terminated"
    assert not node.children


def test_effects_that_an_older_release_has_stored_are_read_in_their_order() -> None:
    """It kept what was written before the first verb apart, and later writes among the verbs."""
    write = {"place": [1, "out", "a"], "value": 1, "context": {}, "as_default": False}
    write |= {"notify": True, "log": True}
    stored = {
        "taken": [7], "writes": [write], "state": {}, "unset": [], "logs": [], "started": True,
        "verbs": [["spawn", ["t.x"], {}], ["write", [{**write, "value": 2}], {}]],
        "has_changed_ways": True,
    }  # fmt: skip

    effects = Effects.from_json(stored)

    first, spawned, last = effects.acts
    assert isinstance(first, Write)
    assert isinstance(last, Write)
    assert (first.value, spawned, last.value) == (1, ("spawn", ["t.x"], {}), 2)
    assert (effects.taken, effects.started) == ([7], True)
