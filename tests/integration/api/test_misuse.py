"""What is easily given by mistake is refused by an error that says what to give."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

import hipq_django as hipq
from hipq_django import flow
from hipq_django.exceptions import HipqError

pytestmark = pytest.mark.django_db


def duplicate() -> None:
    hipq.enqueue("echo", job_key="k")
    hipq.enqueue("echo", job_key="k")


def alias_taken() -> None:
    flow.start("t.double", alias="a", run=False)
    flow.start("t.double", alias="a", run=False)


ERRORS: list[Callable[[], Any]] = [
    duplicate,
    alias_taken,
    lambda: hipq.get_result(hipq.enqueue("echo")),
    lambda: hipq.get_result(hipq.cancel(hipq.enqueue("echo"))),
    lambda: hipq.enqueue("echo", prority=1),  # type: ignore[call-arg]  # misspelt
    lambda: flow.start({"nodes": {"a": {"component": "nobody.knows"}}}),
]


@pytest.mark.parametrize(
    "raise_it", ERRORS, ids=["duplicate", "alias", "not_finished", "failed", "option", "graph"]
)
def test_errors_survive_a_pickle(raise_it: Callable[[], Any]) -> None:
    with pytest.raises(HipqError) as raised:
        raise_it()
    raised.value.add_note("in the shop")
    again = pickle.loads(pickle.dumps(raised.value))

    assert (type(again), str(again)) == (raised.type, str(raised.value))
    assert again.__notes__ == ["in the shop"]
    for name in ("job", "node", "problems"):
        assert getattr(again, name, None) == getattr(raised.value, name, None)
