"""On what the figures were measured."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def describe() -> dict[str, str]:
    """Return what there is to know of this machine."""
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "memory": _memory(),
        "system": f"{platform.system()} {_version()}",
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
    }


def _version() -> str:
    """Return the kernel's version without its build, which is another one after each update."""
    return platform.release().partition("-")[0]


def _processor() -> str:
    return _first_value(Path("/proc/cpuinfo"), "model name") or platform.machine()


def _memory() -> str:
    kilobytes = _first_value(Path("/proc/meminfo"), "MemTotal").split()
    return f"{int(kilobytes[0]) / 1_048_576:.0f} GiB" if kilobytes else "unknown"


def _first_value(path: Path, name: str) -> str:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")
