"""Whose turn it is among the queues of a worker."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hipq_django.engines.values import QueueWork
from hipq_django.models import Queue
from hipq_django.scheduler.polling import QueueRotation

A, B, C = (Queue(pk=pk, name=name) for pk, name in enumerate("abc", start=1))


def busy(*queues: Queue) -> list[QueueWork]:
    return [QueueWork(queue, first_rank=1, has_response=False, has_error=False) for queue in queues]


def names(found: Sequence[QueueWork]) -> list[str]:
    return [one.queue.name for one in found]


@pytest.mark.parametrize(
    ("last", "order"),
    [(None, ["a", "b", "c"]), (A, ["b", "c", "a"]), (B, ["c", "a", "b"]), (C, ["a", "b", "c"])],
)
def test_the_first_is_the_one_behind_the_last_turn(last: Queue | None, order: list[str]) -> None:
    turns = QueueRotation()
    if last:
        turns.served(last)

    assert names(turns.after_probe(busy(A, B, C))) == order


@pytest.mark.parametrize(
    ("found", "has_turn"),
    [
        (QueueWork(A, None, has_response=False, has_error=False), False),
        (QueueWork(A, 1, has_response=False, has_error=False), True),
        (QueueWork(A, None, has_response=True, has_error=False), True),
        (QueueWork(A, None, has_response=False, has_error=True), True),
        (QueueWork(Queue(pk=1, paused=True), 1, has_response=False, has_error=False), False),
        (QueueWork(Queue(pk=1, paused=True), 1, has_response=True, has_error=False), True),
    ],
)
def test_a_queue_without_anything_to_do_has_no_turn(found: QueueWork, has_turn: bool) -> None:
    assert QueueRotation().after_probe([found]) == ([found] if has_turn else [])


def test_of_several_called_queues_the_one_that_was_served_last_comes_last() -> None:
    """However much it has: others may have been called for a job or two."""
    turns = QueueRotation()
    turns.after_probe(busy(A, B, C))
    turns.served(B)

    for name in "bca":
        turns.put_first(name)

    assert names(turns.pop_next()) == ["c", "a", "b"]
