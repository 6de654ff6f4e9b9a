"""The commands that operators are told to type."""

from __future__ import annotations

import shlex

from hipq_django.conf.rules import DEFAULT


def command(name: str, *arguments: str, instance: str) -> str:
    """Return a command for an instance, as one types it in a shell."""
    named = [] if instance == DEFAULT else ["--instance", instance]
    return shlex.join(["manage.py", name, *arguments, *named])
