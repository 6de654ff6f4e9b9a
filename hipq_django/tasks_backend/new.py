"""`new`: a task of `django.tasks` as a job for schedules, chains and batches."""

from __future__ import annotations

from typing import Any

from hipq_django.domain.drafts import NewJob
from hipq_django.domain.serialization import to_json
from hipq_django.exceptions import ArgumentsError


def new(task: Any, /, *args: Any, **kwargs: Any) -> NewJob:
    """Return the job of a task of `django.tasks` with these arguments, which is not stored yet.

    For `enqueue_many`, `chain`, `batch` and `schedule`; the task's own options, as given by its
    decorator and `using`, count. Raise `ArgumentsError` where the arguments do not fit or are not
    JSON, where workers cannot find the task by its path, and where it is none of the backend
    `hipq_django.tasks_backend.HipqBackend`.
    """
    from hipq_django.tasks_backend.backend import HipqBackend
    from hipq_django.tasks_backend.finding import bind
    from hipq_django.tasks_backend.names import InvalidTask, Task

    if not isinstance(task, Task) or not isinstance(backend := task.get_backend(), HipqBackend):
        raise ArgumentsError(
            f"new: {task!r:.200} is no task of a backend of hipq_django; of a task that "
            "hipq_django.task declares, call its own new."
        )
    bind(task, args, kwargs)  # type: ignore[arg-type]  # one of its own
    try:
        job = backend.new_job(task, args, kwargs)  # type: ignore[arg-type]  # one of its own
        job.job_data = to_json(job.job_data)
    except InvalidTask as error:
        raise ArgumentsError(f"{task.name}: {error}") from error
    except (TypeError, ValueError) as error:
        raise ArgumentsError(f"{task.name}: the arguments are not JSON: {error}.") from error
    return job
