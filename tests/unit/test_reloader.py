"""The worker restarts when code changes that a new process can load."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from threading import Event

import pytest

from hipq_django.processes import reloader
from tests.concurrency.sessions import PATIENCE_SECONDS
from tests.processes.conftest import eventually


def test_a_file_that_is_saved_half_written_waits_for_the_next_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file, name = tmp_path / "half_written.py", "half_written"
    file.write_text("ok = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import_module(name)
    load = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import {name}"
    monkeypatch.setattr(sys, "orig_argv", [sys.executable, "-c", load])
    monkeypatch.setattr(reloader, "LOOK_SECONDS", 0.01)
    stopped = Event()
    watching = reloader.Reloader(stopped.set)
    watching.open()

    file.write_text("ok = (\n")
    eventually(lambda: "event=reload_waits" in caplog.text, "it waits")
    assert not stopped.is_set()

    file.write_text("ok = (True)\n")
    assert stopped.wait(PATIENCE_SECONDS)
    assert watching.changed == file
    del sys.modules[name]
