"""A disk so small that it can be filled: a file system in memory, which root can mount."""

from __future__ import annotations

import errno
import os
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MEGABYTES = 512
PIECE = bytes(65_536)
REST = 4_000_000
"""What is left of the free bytes for the end, while others write too."""


class NoDiskError(Exception):
    """Nothing can be mounted here; says why."""


class Disk:
    """A mounted file system, and the file that fills it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        """Take all that is free."""
        ballast = os.open(self._ballast, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        free = os.statvfs(self.folder).f_bavail * os.statvfs(self.folder).f_frsize
        try:
            if free > REST:
                os.posix_fallocate(ballast, 0, free - REST)
            while os.write(ballast, PIECE):
                pass
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
        finally:
            os.close(ballast)

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
