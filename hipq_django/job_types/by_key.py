"""The verbs about one job, as methods of a declared type; `by_key.pyi` has their signatures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asgiref.sync import markcoroutinefunction

import hipq_django

VERBS = (
    "complete", "fail", "progress", "extend", "cancel", "run_now", "reschedule", "reprioritize",
    "requeue", "explain",
)  # fmt: skip


class VerbsByKey:
    """Each method does what the function of the same name in `hipq_django` does."""


def _by_key(name: str) -> Callable[..., Any]:
    def call(self: Any, job_key: str, *args: Any, **options: Any) -> Any:
        verb = getattr(hipq_django, name)
        return verb(self.name, job_key, *args, instance=self.instance, **options)

    call.__name__, call.__doc__ = name, f"See `hipq_django.{name}`."
    return call


for _verb in VERBS:
    setattr(VerbsByKey, _verb, _by_key(_verb))
    setattr(VerbsByKey, f"a{_verb}", markcoroutinefunction(_by_key(f"a{_verb}")))
