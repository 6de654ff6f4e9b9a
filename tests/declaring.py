"""Job types that live as long as one test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hipq_django as hipq
from hipq_django.job_types.declaration import Declaration
from hipq_django.job_types.job_type import JobTypeSpec
from hipq_django.job_types.registry import forget
from hipq_django.job_types.task import Task
from hipq_django.models import Job


class Declare:
    """`hipq_django.job_type`, whose declarations can be taken back."""

    def __init__(self) -> None:
        self._declared: list[Declaration] = []

    def __call__(self, name: str, **options: Any) -> Callable[[Callable[..., Any]], JobTypeSpec]:
        """Declare the decorated function as the handler of job type `name`."""

        def declare(handler: Callable[..., Any]) -> JobTypeSpec:
            declared = hipq.job_type(name, **options)(handler)
            self._declared.append(declared)
            return declared

        return declare

    def task(self, name: str, **options: Any) -> Callable[[Callable[..., Any]], Task[..., Any]]:
        """Declare the decorated function as a task."""

        def declare(function: Callable[..., Any]) -> Task[..., Any]:
            declared = hipq.task(name=name, **options)(function)
            self._declared.append(declared)
            return declared

        return declare

    def forget_all(self) -> None:
        """Take all declarations back."""
        for declared in self._declared:
            forget(declared)


def noting(notes: list[Any], attribute: str, result: Any) -> Callable[[Job], Any]:
    """Return a handler that notes this attribute of each job and returns `result`."""

    def handler(job: Job) -> Any:
        notes.append(getattr(job, attribute))
        return result

    return handler
