"""The steps that actors have begun, and how they go on and end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from django.db import Error

from tests.job_life.actors import END, Actor, Actors, Killed, Until


@dataclass(eq=False)
class Step:
    """What an actor does for somebody, and what became of it."""

    name: str
    actor: Actor
    owner: object
    is_alone: bool
    refusals: tuple[type[Exception], ...]
    is_broken: bool = False
    has_ended: bool = False
    result: Any = None
    refusal: Exception | None = None

    @property
    def was_alone(self) -> bool:
        """Whether it ran from its beginning to its end while nobody else's step was open."""
        return self.has_ended and self.is_alone

    @property
    def has_stopped(self) -> bool:
        """Whether it goes on when it is told to; another one waits for a lock."""
        return bool(self.actor.stopped_before)

    def end(self) -> None:
        """Learn what it returned or raised; raise what nobody would expect."""
        future, self.actor.future = self.actor.future, None
        self.has_ended = True
        try:
            self.result = future.result() if future else None
        except self.refusals as error:
            self.refusal = error
        except (Error, Killed):
            if not self.is_broken:
                raise


class Steps:
    """The open steps; each result is noted, and all is checked whenever none is moving."""

    def __init__(
        self, actors: Actors, note: Callable[[Any], None], check: Callable[[], None]
    ) -> None:
        self._actors = actors
        self._note = note
        self._check = check
        self._open: list[Step] = []

    def __iter__(self) -> Iterator[Step]:
        return iter(list(self._open))

    @property
    def stopped(self) -> list[Step]:
        """Those that can go on."""
        return [step for step in self if step.has_stopped]

    def begin(
        self,
        name: str,
        run: Callable[[], Any],
        until: Until,
        *,
        owner: object = None,
        refusals: tuple[type[Exception], ...] = (),
    ) -> Step:
        """Begin a step and go on with it as far as told; where all actors are busy, make room.

        A single actor ends each step before the next one begins.
        """
        while not (idle := [actor for actor in self._actors if actor.is_idle]):
            self.go_on(self.stopped[0], END)
        step = Step(name, idle[0], owner, not self._open, refusals)
        for other in self:
            other.is_alone = False
        self._open.append(step)
        step.actor.begin(run, until if len(self._actors) > 1 else END)
        self._settle()
        return step

    def go_on(self, step: Step, until: Until) -> None:
        """Let a stopped step go on."""
        step.actor.go_on(until)
        self._settle()

    def cut(self, step: Step) -> None:
        """Break its connection: what it has not committed is undone."""
        step.is_broken = True
        step.actor.cut()
        self._settle()

    def lose_confirmation(self, step: Step) -> None:
        """Break the connection of a stopped step when its next commit is done."""
        step.is_broken = True
        step.actor.lose_confirmation()
        self.go_on(step, END)

    def kill(self, owner: object) -> None:
        """End all steps of an owner where they stand."""
        for step in self:
            if step.owner is owner and not step.has_ended:
                step.is_broken = True
                step.actor.kill()
                self._settle()

    def _settle(self) -> None:
        self._actors.settle()
        for step in self:
            if not (step.actor.is_under_way or step.has_stopped):
                self._open.remove(step)
                step.end()
                self._note(step.result)
        self._check()
