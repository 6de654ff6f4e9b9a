"""The virtual environments of the peers, made once and kept."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.systems import System

INSTALL_SECONDS = 600
LISTED = """
import json, importlib.metadata as m
print(json.dumps({d.metadata["Name"]: d.version for d in m.distributions()}))
"""


class NotInstalledError(Exception):
    """A system cannot be installed here; says why."""


def python_of(system: System, folder: Path) -> str:
    """Return the interpreter in which the system is installed, after installing it if need be.

    Raise `NotInstalledError`.
    """
    if not system.requirements:
        return sys.executable
    home = folder / f"{system.name}-{sys.version_info.major}.{sys.version_info.minor}"
    python, stamp = home / "bin" / "python", home / "requirements.txt"
    wanted = "\n".join(system.requirements) + "\n"
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"Installing {' '.join(system.requirements)} …", flush=True)
        venv.create(home, clear=True, with_pip=True)
        _install(python, system.requirements)
        stamp.write_text(wanted)
    return str(python)


def versions_in(python: str) -> dict[str, str]:
    """Return the names and versions of all packages in an environment."""
    listed = subprocess.run([python, "-c", LISTED], check=True, capture_output=True, text=True)
    found = json.loads(listed.stdout)
    return {name: found[name] for name in sorted(found, key=str.lower)}


def _install(python: Path, requirements: tuple[str, ...]) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    try:
        subprocess.run(
            [*command, *requirements],
            check=True,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise NotInstalledError(f"pip took more than {INSTALL_SECONDS} s") from error
    except subprocess.CalledProcessError as error:
        lines = str(error.stderr).strip().splitlines() or ["pip failed"]
        raise NotInstalledError(lines[-1]) from error
