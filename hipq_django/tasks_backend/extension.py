"""What the backend of `django.tasks` adds to the queue.

This module is imported in each project, also in one without `django.tasks`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hipq_django.extensions import Extension

if TYPE_CHECKING:
    from hipq_django.job_types.declaration import Declaration

KIND = "django.tasks"
"""The kind of the job types whose code is found by their name, which is the path of a task."""


class TasksExtension(Extension):
    """Finds tasks by their paths; the backend, once it is imported, hears of their ends."""

    kind = KIND

    def find(self, instance: str, name: str) -> Declaration | None:
        """Return the declaration of the task at a path."""
        from hipq_django.tasks_backend.finding import find  # needs `django.tasks`

        return find(instance, name)


TASKS = TasksExtension()
