"""Shows how far the demo is: one line that changes on a terminal, plain lines elsewhere."""

import time

from django.core.management.base import OutputWrapper

SECONDS_BETWEEN_LINES = 1.0


class Progress:
    """One line of text that changes."""

    def __init__(self, out: OutputWrapper) -> None:
        self._out = out
        self._is_live = out.isatty()
        self._last = ""
        self._next_time = 0.0

    def show(self, line: str) -> None:
        """Show the line as it is now."""
        if line == self._last or time.monotonic() < self._next_time:
            return
        if self._is_live:
            self._write(f"\r{line:<{len(self._last)}}")
        else:
            self._write(f"{line}\n")
            self._next_time = time.monotonic() + SECONDS_BETWEEN_LINES
        self._last = line

    def end(self) -> None:
        """Leave the line standing."""
        if self._is_live and self._last:
            self._write("\n")

    def _write(self, text: str) -> None:
        self._out.write(text, ending="")
        self._out.flush()
