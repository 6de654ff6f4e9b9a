"""Whose turn it is among the queues of a worker."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hipq_django.hotpath.base import Busy
from hipq_django.models import Queue
from hipq_django.turns import Turns

A, B, C = (Queue(pk=pk, name=name) for pk, name in enumerate("abc", start=1))


def busy(*queues: Queue) -> list[Busy]:
    return [Busy(queue, first_rank=1, has_response=False, has_error=False) for queue in queues]


def names(found: Sequence[Busy]) -> list[str]:
    return [one.queue.name for one in found]


@pytest.mark.parametrize(
    ("last", "order"),
    [(None, ["a", "b", "c"]), (A, ["b", "c", "a"]), (B, ["c", "a", "b"]), (C, ["a", "b", "c"])],
)
def test_the_first_is_the_one_behind_the_last_turn(last: Queue | None, order: list[str]) -> None:
    turns = Turns()
    if last:
        turns.had(last)

    assert names(turns.after_look(busy(A, B, C))) == order


@pytest.mark.parametrize(
    ("found", "has_turn"),
    [
        (Busy(A, None, has_response=False, has_error=False), False),
        (Busy(A, 1, has_response=False, has_error=False), True),
        (Busy(A, None, has_response=True, has_error=False), True),
        (Busy(A, None, has_response=False, has_error=True), True),
        (Busy(Queue(pk=1, paused=True), 1, has_response=False, has_error=False), False),
        (Busy(Queue(pk=1, paused=True), 1, has_response=True, has_error=False), True),
    ],
)
def test_a_queue_without_anything_to_do_has_no_turn(found: Busy, has_turn: bool) -> None:
    assert Turns().after_look([found]) == ([found] if has_turn else [])


def test_those_whose_turn_did_not_come_are_next_in_their_order_and_once() -> None:
    turns = Turns()
    turns.had(A)
    order = turns.after_look(busy(A, B, C))

    turns.leave(order[1:])

    assert names(turns.take()) == ["c", "a"]
    assert turns.take() == []


def test_a_called_queue_comes_before_those_that_were_left_and_once() -> None:
    turns = Turns()
    turns.after_look(busy(A, B, C))
    turns.leave(busy(B, C))

    turns.call("c")
    turns.call("c")
    turns.call("unknown")

    assert names(turns.take()) == ["c", "b"]


def test_a_look_knows_better_than_what_was_left() -> None:
    turns = Turns()
    turns.after_look(busy(A, B))
    turns.leave(busy(B))

    turns.after_look(busy(A))

    assert turns.take() == []
