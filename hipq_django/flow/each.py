"""What `each` does next, by what lies on the ports. Pure.

Source: SideJob's `for_inputs`, case 100.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple


class Lies(NamedTuple):
    """What lies on one port."""

    has_messages: bool
    has_default: bool


class Next(Enum):
    """What comes next."""

    STOP = "stop"
    """There is nothing to do."""
    SUSPEND = "suspend"
    """Some port lacks its value; what lies on the others stays."""
    TAKE = "take"
    """Take one value of each."""
    DEFAULTS = "defaults"
    """All have defaults only: they count once, until one of them changes."""


def what_next(ports: Sequence[Lies]) -> Next:
    """Return what `each` does next."""
    if not ports:
        return Next.STOP
    can_give = [port.has_messages or port.has_default for port in ports]
    if any(port.has_messages for port in ports):
        return Next.TAKE if all(can_give) else Next.SUSPEND
    return Next.DEFAULTS if all(can_give) else Next.STOP
