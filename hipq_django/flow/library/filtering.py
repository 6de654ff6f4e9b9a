"""A component that filters by jq, in a process of its own: what it is given may never end.

Source: the worker Filter of SideJob's workers-core.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from threading import Timer
from typing import Any, Self

from hipq_django.flow.base import Component
from hipq_django.flow.declared_ports import In, Out
from hipq_django.flow.declaring import component
from hipq_django.flow.exceptions import FilterError
from hipq_django.flow.library import filter_process

MAX_SECONDS = 10.0

_CUT = re.compile(r"""\(.{1,200}\.\.\.["\]}]?\)""")
"""A value that jq quotes only the beginning of, in which nobody would know a sensitive one."""


class FilterProcess:
    """A process that knows nothing of this one: not its environment, and none of its files."""

    def __init__(self) -> None:
        if find_spec("jq") is None:
            raise FilterError('flow.filter: install jq: pip install "hipq_django[jq]"')
        self._is_late = False
        self._process = subprocess.Popen(  # noqa: S603 - our own file
            [sys.executable, "-I", str(Path(filter_process.__file__))],
            env={},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, program: str, value: Any, most: int) -> list[Any]:
        """Return what a program makes of a value, at most so many bytes of JSON.

        Raise `FilterError` where it cannot.
        """
        timer = Timer(MAX_SECONDS, self._stop)
        timer.start()
        answer = self._answer(json.dumps([program, value, most]))
        timer.cancel()
        if not answer:
            raise FilterError(f"flow.filter: {program!r:.200} {self._why_it_died()}")
        found = json.loads(answer)
        if "error" in found:
            said = _CUT.sub("(…)", found["error"])
            raise FilterError(f"flow.filter: {program!r:.200}: {said}")
        values: list[Any] = found["values"]
        return values

    def _answer(self, question: str) -> str:
        """Return the line that answers a line; an empty one if the process has died."""
        questions, answers = self._process.stdin, self._process.stdout
        assert questions is not None and answers is not None  # noqa: S101, PT018 - for type checkers
        with suppress(BrokenPipeError):
            questions.write(question + "\n")
            questions.flush()
        return answers.readline()

    def _stop(self) -> None:
        self._is_late = True
        self._process.kill()

    def _why_it_died(self) -> str:
        if self._is_late:
            return f"took longer than {MAX_SECONDS:g} s; it may never end."
        return f"needs more than {filter_process.MAX_BYTES >> 20} MB; it may never end."


@component("flow.filter", public=True)
class Filter(Component):
    """Hand on what a jq program makes of each value: nothing, one value or several."""

    program, value, out = In(str, name="filter"), In(name="in"), Out()

    def perform(self) -> None:
        most = self._run.settings.max_message_bytes
        with FilterProcess() as process:
            for program, value in self.each("filter", "in"):
                self.out.write_many(process.ask(program, value, most))
