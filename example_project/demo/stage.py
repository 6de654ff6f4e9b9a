"""Where the demo takes place: its processes, their logs, and the way out."""

import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from example_project.demo.children import Child

PAUSE_SECONDS = 0.1
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StoppedError(Exception):
    """Somebody wants the demo to stop."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number  # as shells have it


class ChildError(Exception):
    """A process of the demo ended by itself."""


class Stage:
    """Starts processes; leaving the context ends them, however it is left."""

    def __init__(self) -> None:
        self.logs = Path(tempfile.mkdtemp(prefix="hipq-demo-"))
        self.children: list[Child] = []
        self._stopped_by = 0
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> Self:
        # A handler that only takes a note: an exception at any place could leave a process behind
        # that was just started.
        for number in STOP_SIGNALS:
            self._handlers[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for child in self.children:
            child.terminate()
        for child in self.children:
            child.wait()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        failed = kind is not None and not issubclass(kind, StoppedError)
        if not (failed and self.children):
            shutil.rmtree(self.logs)

    def start(self, name: str, *arguments: str, **env: str) -> Child:
        """Start a Python program; `env` is added to the environment."""
        log = self.logs / f"{name}.log"
        self.children.append(Child(name, list(arguments), log=log, env=env))
        return self.children[-1]

    def kill(self, child: Child) -> None:
        """End a process as a crash would, and expect that."""
        self.children.remove(child)
        child.kill()

    def wait_until(self, condition: Callable[[], object], *, seconds: float) -> bool:
        """Wait until the condition holds; return False where it did not in time."""
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                return False
            self.pause()
        return True

    def pause(self) -> None:
        """Wait a moment, then `check`."""
        time.sleep(PAUSE_SECONDS)
        self.check()

    def check(self) -> None:
        """Raise `StoppedError` if the demo is to stop, `ChildError` if a process has ended."""
        if self._stopped_by:
            raise StoppedError(self._stopped_by)
        for child in self.children:
            if child.has_ended():
                raise ChildError(f"The {child.name} has ended by itself.\n{child.last_words()}")

    @contextmanager
    def blaming_the_dead(self) -> Iterator[None]:
        """Where a request fails because its server has ended, raise the `ChildError` instead."""
        try:
            yield
        except OSError:
            self.pause()
            raise

    def troubles(self) -> list[str]:
        """Return the lines of all logs that speak of errors."""
        return [line for child in self.children for line in child.troubles()]

    def _note(self, number: int, _frame: object) -> None:
        self._stopped_by = number
