"""Connections that one test moves statement by statement.

Each actor works in a thread of its own and can stop before every statement and every commit. It is
the test that says who goes on: which transactions are open at the same time, and which of them is
committed first. The same choices give the same run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Self

from django.db import connection, connections

PATIENCE_SECONDS = 60.0
LOOK_SECONDS = 0.01
"""How long actors may be under way before the server is asked whether they wait for locks."""

DEADLOCK_SECONDS = 0.3
"""How long sessions that seem to wait for each other are given to show that they do not."""

COMMIT, END = "commit", "end"
Until = str | int
"""How far an actor goes: to the end of its step, to before its next commit, so many stops, or to
before a statement that contains this text."""

TERMINATE = "SELECT pg_terminate_backend(%s, 10000)"
BLOCKERS = "SELECT pid, pg_blocking_pids(pid) FROM unnest(%s::integer[]) AS pid"


class Killed(BaseException):
    """The process that an actor stands for is dead; no code survives that."""


class Actor:
    """A thread and its connection; it has a step to do, or is idle."""

    def __init__(self, changed: threading.Condition) -> None:
        self.future: Future[Any] | None = None
        self.pid = 0
        self.stopped_before = ""
        self.is_under_way = False
        self.commits = 0
        self.is_waited_for = False
        """Whether somebody may go on when it gives its locks back."""
        self._changed = changed
        self._until: Until = END
        self._is_cut = False
        self._is_killed = False
        self._is_unconfirmed = False
        self._thread = ThreadPoolExecutor(1)
        self._thread.submit(self._open).result()

    @property
    def is_idle(self) -> bool:
        """Whether it can begin a step."""
        return self.future is None

    # What the test does with it

    def begin(self, step: Callable[[], Any], until: Until) -> None:
        """Begin a step."""
        self._is_killed = self._is_unconfirmed = False
        self._until, self.is_under_way = until, True
        self.future = self._thread.submit(self._run, step)

    def go_on(self, until: Until) -> None:
        """Let it go on from where it has stopped."""
        with self._changed:
            self._until, self.stopped_before, self.is_under_way = until, "", True
            self._changed.notify_all()

    def stop_soon(self) -> None:
        """Let it go no further than to its next stop."""
        self._until = 1

    def cut(self) -> None:
        """End its session on the server and let it go on: its statement, or the next one, fails."""
        self._is_cut = True
        with connection.cursor() as cursor:
            cursor.execute(TERMINATE, [self.pid])
        if self.stopped_before:
            self.go_on(END)

    def lose_confirmation(self) -> None:
        """End its session after its next commit, before it learns of that."""
        self._is_cut = self._is_unconfirmed = True

    def kill(self) -> None:
        """End its session, and its code where it stands."""
        self._is_killed = True
        self.cut()

    def close(self) -> None:
        """End the thread and the connection."""
        self._thread.submit(connections.close_all).result(PATIENCE_SECONDS)
        self._thread.shutdown()

    # In its own thread

    def _open(self) -> None:
        own: Any = connections["default"]
        own.ensure_connection()
        own.execute_wrappers.append(self._stop_and_execute)
        commit, roll_back = own._commit, own._rollback

        def stop_and_commit() -> None:
            self._stop("COMMIT")
            commit()
            self.commits += 1
            self._give_locks_back()
            self._learn_of_commit()

        def roll_back_and_give_way() -> None:
            roll_back()
            self._give_locks_back()

        own._commit, own._rollback = stop_and_commit, roll_back_and_give_way

    def _run(self, step: Callable[[], Any]) -> Any:
        own = connections["default"]
        if self._is_cut:
            self._is_cut = False
            own.close()
        own.ensure_connection()
        if own.vendor == "postgresql":
            self.pid = own.connection.info.backend_pid
        try:
            return step()
        finally:
            with self._changed:
                self.is_under_way = False
                self._changed.notify_all()

    def _stop_and_execute(
        self, execute: Any, sql: str, params: Any, many: bool, context: Mapping[str, Any]
    ) -> Any:
        self._stop(sql)
        result = execute(sql, params, many, context)
        is_committed = not context["connection"].in_atomic_block
        if is_committed or sql.startswith("ROLLBACK"):
            self._give_locks_back()
        if is_committed:
            self.commits += 1
            self._learn_of_commit()
        return result

    def _give_locks_back(self) -> None:
        """Let those go first who waited: of two that are moving the quicker one would win."""
        if self.is_waited_for:
            self._until = 1

    def _stop(self, point: str) -> None:
        with self._changed:
            if self._stops_before(point):
                self.stopped_before, self.is_under_way = " ".join(point.split()), False
                self._changed.notify_all()
                self._changed.wait_for(lambda: not self.stopped_before)
        if self._is_killed:
            raise Killed

    def _stops_before(self, point: str) -> bool:
        if self._is_killed:
            return False
        if isinstance(self._until, int):
            self._until -= 1
            return self._until <= 0
        if self._until in (COMMIT, END):
            return self._until == point.lower()
        return self._until in point.lower()

    def _learn_of_commit(self) -> None:
        if not self._is_unconfirmed:
            return
        self._is_unconfirmed = False
        own = connections["default"]
        with own.wrap_database_errors:
            own.connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")


class Actors:
    """All actors; whenever the test looks, none of them is moving."""

    def __init__(self, number: int) -> None:
        self._changed = threading.Condition()
        self._actors = [Actor(self._changed) for _ in range(number)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        """End all steps, threads and connections."""
        self.kill_all()
        for actor in self:
            actor.close()

    def __iter__(self) -> Iterator[Actor]:
        return iter(self._actors)

    def __len__(self) -> int:
        return len(self._actors)

    @property
    def commits(self) -> int:
        """How often something may have been committed."""
        return sum(actor.commits for actor in self)

    def settle(self) -> None:
        """Wait until each actor has ended its step, has stopped, or waits for another's lock.

        One that waits goes no further than to its next stop once it gets the lock.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        circle: set[int] = set()
        circle_since = 0.0
        while moving := {actor.pid: actor for actor in self if actor.is_under_way}:
            assert time.monotonic() < deadline, f"still moving: {sorted(moving)}"
            if self._have_stopped(moving):
                break
            blockers = _blockers(moving)
            waiting = _waiting(blockers, {a.pid for a in self if a.stopped_before})
            for pid in waiting:
                moving[pid].stop_soon()
            if waiting == blockers.keys():
                break
            # Asked for one by one, so a look may show a circle that never was; a true one stays
            # until the server ends it, after a second.
            seen, circle = circle, _circle(blockers, waiting)
            now = time.monotonic()
            circle_since = circle_since if circle == seen else now
            assert not circle or now < circle_since + DEADLOCK_SECONDS, f"deadlock: {blockers}"
        for actor in self:
            actor.is_waited_for = any(other.is_under_way for other in self)

    def _have_stopped(self, moving: Mapping[int, Actor]) -> bool:
        with self._changed:
            return self._changed.wait_for(
                lambda: not any(actor.is_under_way for actor in moving.values()), LOOK_SECONDS
            )

    def kill_all(self) -> None:
        """End all steps and forget them."""
        for actor in self:
            if not actor.is_idle:
                actor.kill()
                self.settle()
            actor.future = None


def _blockers(moving: Mapping[int, Actor]) -> dict[int, set[int]]:
    """Return the sessions whose locks each of these waits for."""
    if connection.vendor != "postgresql":
        return {pid: set() for pid in moving}
    with connection.cursor() as cursor:
        cursor.execute(BLOCKERS, [list(moving)])
        return {pid: set(found) for pid, found in cursor.fetchall()}


def _waiting(blockers: Mapping[int, set[int]], at_rest: set[int]) -> set[int]:
    """Return those who wait, directly or not, for one that has stopped."""
    waiting: set[int] = set()
    for _ in blockers:
        waiting |= {pid for pid, found in blockers.items() if found & (at_rest | waiting)}
    return waiting


def _circle(blockers: Mapping[int, set[int]], waiting: set[int]) -> set[int]:
    """Return those who can only wait for each other, for ever."""
    stuck = {pid for pid, found in blockers.items() if found} - waiting
    for _ in blockers:
        stuck = {pid for pid in stuck if blockers[pid] <= stuck}
    return stuck
