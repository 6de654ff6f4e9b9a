"""What a run may do, beside handing on what it gets."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from django.contrib.auth.models import Group

import hipq_django as hipq
from tests.flow.invariants import UNDONE
from tests.testapp.flows import CodeError, Scripted

Ending = Callable[[Scripted], Any]

CHILD = "child"
BOOKED = re.compile(r"booked (\d+) by job \d+")
"""The names of the rows in which runs book numbers, as a project would in a table of its own."""


def hand_on(component: Scripted) -> None:
    """Hand on all that lies there."""
    for item in component.each("item"):
        component.out.write(item)


def hand_on_and_suspend(component: Scripted) -> None:
    hand_on(component)
    component.suspend()


def hand_on_and_run_again(component: Scripted) -> None:
    hand_on(component)
    component.run()


def hand_on_one_and_raise(component: Scripted) -> None:
    """What was handed on before is kept."""
    for number, item in enumerate(component.each("item")):
        if number:
            leave_traces(component)
            raise CodeError("the second one")
        component.out.write(item)


def take_one_and_raise(component: Scripted) -> None:
    """What was read and written is undone."""
    item = component.item.read()
    component.out.write(item)
    leave_traces(component)
    raise CodeError("after it was written")


def leave_traces(component: Scripted) -> None:
    """Do what counts only if the run does not raise."""
    component.state.set(undone=UNDONE)
    component.out.write(UNDONE)
    component.spawn(f"undone-{component.job.pk}", "t.scripted")


def raise_at_once(component: Scripted) -> None:
    leave_traces(component)
    raise CodeError(f"{component.node} is as asked")


def hand_on_and_have_a_child(component: Scripted) -> None:
    hand_on(component)
    if component.child(CHILD) is None:
        component.spawn(CHILD, "t.scripted", run=True)


def hand_on_to_child(component: Scripted) -> None:
    """Let the child have all of it, once there is one."""
    child = component.child(CHILD)
    if child is None:
        hand_on_and_have_a_child(component)
        return
    for item in component.each("item"):
        child.inputs["item"].write(item)


def hand_on_and_wake_relatives(component: Scripted) -> None:
    hand_on(component)
    for relative in (component.parent, *component.children.values()):
        if relative is not None:
            relative.state.set(woken_by=component.node.pk)
            relative.run()


def hand_on_and_end_child(component: Scripted) -> None:
    hand_on(component)
    if (child := component.child(CHILD)) is not None:
        child.terminate(recursive=True)


def book(component: Scripted) -> None:
    """Take all, and book it elsewhere: in the transaction that ends the run."""
    numbers = list(component.item)
    with component.finishing():
        for number in numbers:
            Group.objects.create(name=f"booked {number} by job {component.job.pk}")


def booked() -> list[int]:
    """Return the numbers that were booked, each as often as it was."""
    found = map(BOOKED.fullmatch, Group.objects.values_list("name", flat=True))
    return [int(match[1]) for match in found if match]


def hand_on_and_terminate(component: Scripted) -> None:
    hand_on(component)
    component.terminate()


def ask(component: Scripted) -> Any:
    """Take one, and wait for the answer to it; after that, hand on the others."""
    packet = component.item.packet()
    if packet is None:
        return None
    component.out.write(packet.value)
    component.job.set_key(f"item-{packet.value}")
    return hipq.WAIT


REQUEST_ENDINGS: tuple[Ending, ...] = (
    *[hand_on] * 8,
    hand_on_and_suspend,
    hand_on_and_run_again,
    *[hand_on_one_and_raise] * 2,
    *[take_one_and_raise] * 2,
    raise_at_once,
    *[hand_on_and_have_a_child] * 2,
    hand_on_and_terminate,
    *[hand_on_to_child] * 4,
    *[hand_on_and_wake_relatives] * 2,
    hand_on_and_end_child,
    *[book] * 3,
    *[ask] * 3,
)
RESPONSE_ENDINGS: tuple[Ending, ...] = (hand_on, hand_on, raise_at_once)
