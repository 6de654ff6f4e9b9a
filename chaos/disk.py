"""A disk so small that it can be filled: a file system in memory, which root can mount."""

from __future__ import annotations

import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MEGABYTES = 512


class NoDiskError(Exception):
    """Nothing can be mounted here; says why."""


class Disk:
    """A mounted file system, and the file that fills it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        """Take all that is free."""
        found = os.statvfs(self.folder)
        with self._ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(found.f_bavail * found.f_frsize, 1))

    def free(self) -> None:
        """Give it back."""
        self._ballast.unlink(missing_ok=True)


@contextmanager
def small_disk(folder: Path) -> Iterator[Disk]:
    """Mount a disk over `folder` for as long as the context lasts; raise `NoDiskError`."""
    mounted = _run("mount", "-t", "tmpfs", "-o", f"size={MEGABYTES}m", "tmpfs", str(folder))
    if mounted.returncode:
        raise NoDiskError(f"No file system can be mounted here: {mounted.stderr.strip()}")
    try:
        yield Disk(folder)
    finally:
        _run("umount", "--lazy", str(folder))


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))
