"""The errors of hipq_django. Each message names the value, the rule and the way out."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hipq_django.models import Job


class HipqError(Exception):
    """Base class of every error that hipq_django raises."""


class ConfigurationError(HipqError, ImproperlyConfigured):
    """The HIPQ setting, or a setting it depends on, cannot be used."""


class InvalidJobError(HipqError, ValueError):
    """A job cannot be created or changed with these values; nothing was changed."""


class InvalidJobTypeError(HipqError, ValueError):
    """A job type cannot be declared like this, or, with STRICT, is not declared."""


class ArgumentsError(InvalidJobError, TypeError):
    """The arguments of a task do not fit its function, or cannot be stored; nothing was changed."""


class InvalidScheduleError(HipqError, ValueError):
    """A schedule cannot be due like this, or not be changed; nothing was changed."""


class ScheduleNotFoundError(HipqError, LookupError):
    """There is no schedule with this name; the message suggests the nearest one."""


class StoredArgumentsError(HipqError):
    """The error of a job whose stored arguments do not fit the task's function."""


class JobNotFoundError(HipqError, LookupError):
    """No job has this id: it was pruned, or never existed."""


class _OfJobError(Exception):
    """Has the job that it is about."""

    def __init__(self, message: str, job: Job) -> None:
        super().__init__(message)
        self.job = job

    def __reduce__(self) -> tuple[Any, ...]:
        """Let it be pickled, for example by a test runner with several processes."""
        return type(self), (*self.args, self.job), super().__reduce__()[2]


class JobNotFinishedError(_OfJobError, HipqError):
    """The job has no result yet; `job` is the job as it was read last."""


class JobFailedError(_OfJobError, HipqError):
    """The job ended without success and has no result; `job` is that job."""


class JobCancelled(HipqError):  # noqa: N818 - as the outcome
    """Stands for the end of a cancelled job among the errors of a task result."""


class ResultError(HipqError):
    """A handler, or a step, returned something that cannot be stored as a result."""


class StaleAttemptError(HipqError):
    """The handler's attempt is over: it timed out, was answered, cancelled or taken over.

    Nothing that the handler does from now on has any effect on the job; let this end it.
    """


class InvalidAnswerError(HipqError, ValueError):
    """An answer cannot be stored with these values; nothing was changed."""


_OF_OTHER_QUEUES = {
    "autoretry_for": "retry", "countdown": "delay", "eta": "scheduled_run_time",
    "max_retries": "retry", "queue_name": "queue", "retries": "retry", "retry_backoff": "retry",
    "run_after": "scheduled_run_time", "run_at": "scheduled_run_time", "schedule_in": "delay",
    "soft_time_limit": "timeout", "time_limit": "timeout",
}  # fmt: skip
"""What options are called by who has used another queue before."""


class UnknownOptionError(InvalidJobError, InvalidJobTypeError, TypeError):
    """An option that does not exist; the message gives the one that is probably meant."""

    def __init__(self, where: str, option: str, known: Iterable[str]) -> None:
        names = tuple(known)
        here = _OF_OTHER_QUEUES.get(option)
        meant = f"; here it is {here!r}." if here in names else nearest_name(option, names)
        super().__init__(f"{where}: unknown option {option!r}{meant}")
        self._given = where, option, names

    def __reduce__(self) -> tuple[Any, ...]:
        """Let it be pickled."""
        state: Any = super().__reduce__()[2]
        return type(self), self._given, {**state, "args": self.args}


class DuplicateJobKeyError(_OfJobError, HipqError):
    """A job of this type has the same key, or of a unique type the same arguments.

    `job` is that job.
    """


class ForgedCallbackError(HipqError):
    """The token of a callback URL was not signed by this project."""


class ForgedWebhookError(HipqError):
    """A webhook message is not authentic, or its authenticity cannot be checked."""


class JobTimeout(HipqError):  # noqa: N818 - a kind of error in a job's history
    """The error of an attempt that did not succeed within its timeout."""


class WorkerLost(HipqError):  # noqa: N818 - a kind of error in a job's history
    """The error of a job whose worker stopped sending heartbeats while it executed the job."""


class ErrorAnswer(HipqError):  # noqa: N818 - a kind of error in a job's history
    """The error of a job that the other system answered with an error."""


class ShardError(HipqError, ValueError):
    """Jobs that belong together are in different shards, or shards cannot be changed like this."""


class ShardMapError(ShardError, ConfigurationError):
    """The setting SHARDS does not fit what the databases say of themselves."""


class ShardsError(HipqError):
    """Of the shards that a call wrote to, some failed; what was committed in others stays.

    `enqueued` has the jobs that are stored, `failed` the errors, each by the alias of the shard.
    """

    def __init__(
        self, message: str, enqueued: dict[str, list[Job]], failed: dict[str, Exception]
    ) -> None:
        super().__init__(message)
        self.enqueued = enqueued
        self.failed = failed

    def __reduce__(self) -> tuple[Any, ...]:
        """Let it be pickled."""
        return type(self), (*self.args, self.enqueued, self.failed), super().__reduce__()[2]


def nearest_name(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence, with its full stop: the nearest known name, or all of them.

    A name that differs in its case alone is near, as is `throttle_limit` in a setting.
    """
    by_letters = {each.casefold(): each for each in sorted(known)}
    if not by_letters:
        return "; none is known."
    if near := get_close_matches(name.casefold(), by_letters, n=1):
        return f", did you mean {by_letters[near[0]]!r}?"
    return f"; known are {', '.join(by_letters.values())}."


def alike(name: str, others: Iterable[str]) -> str | None:
    """Return the other name that is so near that one of the two is probably misspelt.

    One with the same letters in another order is, however short it is.
    """
    names = list(others)
    swapped = [other for other in names if sorted(other) == sorted(name)]
    return next(iter([*swapped, *get_close_matches(name, names, n=1, cutoff=0.8)]), None)
