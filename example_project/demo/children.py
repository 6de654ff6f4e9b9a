"""The processes that a demo starts, and is sure to end."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+(?=/)")
TROUBLE = re.compile(r"\b(ERROR|CRITICAL|Internal Server Error)\b|^\S*(Error|Exception)\b")
STOP_SECONDS = 10


class Child:
    """One process; what it prints goes to a log file."""

    def __init__(self, name: str, arguments: list[str], *, log: Path, env: dict[str, str]) -> None:
        self.name = name
        self.log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(  # noqa: S603 - our own programs
                [sys.executable, "-u", *arguments],
                cwd=ROOT,
                env=os.environ | env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Ctrl-C in the terminal reaches the demo alone, which then ends its children.
                start_new_session=True,
            )

    def has_ended(self) -> bool:
        """Return whether the process is gone."""
        return self._process.poll() is not None

    def address(self) -> str:
        """Return the address that it says it serves, '' before it does."""
        found = ADDRESS.search(self.log.read_text())
        return found.group() if found else ""

    def troubles(self) -> Iterator[str]:
        """Yield the lines of its log that speak of errors."""
        for line in self.log.read_text().splitlines():
            if TROUBLE.search(line):
                yield f"{self.name}: {line}"

    def last_words(self) -> str:
        """Return the end of its log, and where the whole is."""
        return "\n".join([f"The end of {self.log}:", *self.log.read_text().splitlines()[-10:]])

    def terminate(self) -> None:
        """Ask it to end."""
        self._process.terminate()

    def kill(self) -> None:
        """End it by force, without a last word."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def wait(self) -> None:
        """Wait for its end; end it by force where it does not come."""
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
