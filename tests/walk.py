"""How many files of the package one act enters: `python -m tests.walk` counts them, on SQLite.

What a newcomer has to open to follow it. Only calls count, not imports.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import django
from django.core.management import call_command

PACKAGE = Path(__file__).parents[1] / "hipq_django"


def entered(act: Callable[[], Any]) -> list[str]:
    """Return the files whose functions are called while `act` goes on."""
    files: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            files.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
    inside = [Path(file) for file in files if Path(file).is_relative_to(PACKAGE)]
    return sorted(str(path.relative_to(PACKAGE)) for path in inside)


def walks() -> dict[str, list[str]]:
    """Return the files of each act: all of them were done once before."""
    import hipq_django as hipq
    from hipq_django import extensions
    from tests.hand_worker import HandWorker

    flows = [each for each in extensions.registered if each.companion]
    for extension in flows:  # as in a project without flows
        extensions.registered.remove(extension)
    hipq.job_type("walked")(lambda job: hipq.WAIT if job.job_key != "NONE" else None)
    found: dict[str, list[str]] = {}
    for _ in range(2):
        hipq.enqueue("walked", job_key="k")
        worker = HandWorker()
        worker.work()
        found["complete"] = entered(lambda: hipq.complete("walked", "k"))
        found["enqueue"] = entered(lambda: hipq.enqueue("walked"))
        found["claiming pass"] = entered(worker.run_pass)
        worker.execute()
        found["write"] = entered(worker.save)
    return found


def main() -> None:
    """Print the files of each act."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    with TemporaryDirectory() as folder:
        os.environ["DATABASE_URL"] = f"sqlite:///{folder}/walk"
        django.setup()
        call_command("migrate", verbosity=0)
        for act, files in walks().items():
            print(f"{act}: {len(files)} files\n    {' '.join(files)}")  # noqa: T201 - what it is run for


if __name__ == "__main__":
    main()
