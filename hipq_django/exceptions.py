"""The errors of hipq_django. Each message names the value, the rule and the way out."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from django.core.exceptions import ImproperlyConfigured

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hipq_django.models import Job


class HipqError(Exception):
    """Base class of every error that hipq_django raises."""


class ConfigurationError(HipqError, ImproperlyConfigured):
    """The HIPQ setting, or a setting it depends on, cannot be used."""


class InvalidJobError(HipqError, ValueError):
    """A job cannot be created or moved with these values; nothing was changed."""


class InvalidJobTypeError(HipqError, ValueError):
    """A job type cannot be declared like this."""


class InvalidAnswerError(HipqError, ValueError):
    """An answer cannot be stored with these values; nothing was changed."""


class UnknownOptionError(InvalidJobError, InvalidJobTypeError, TypeError):
    """An option that does not exist; the message gives the nearest one that does."""

    def __init__(self, where: str, option: str, known: Iterable[str]) -> None:
        super().__init__(f"{where}: unknown option {option!r}{nearest_name(option, known)}")


class DuplicateJobKeyError(HipqError):
    """A live job of this type has the same key already; `job` is that job."""

    def __init__(self, message: str, job: Job) -> None:
        super().__init__(message)
        self.job = job


class ForgedCallbackError(HipqError):
    """The token of a callback URL was not signed by this project."""


class ForgedWebhookError(HipqError):
    """A webhook message is not authentic, or nobody can tell."""


class JobTimeout(HipqError):  # noqa: N818 - a kind of error in a job's history
    """The error of a job that was not successful within its timeout."""


class WorkerLost(HipqError):  # noqa: N818 - a kind of error in a job's history
    """The error of a job whose worker stopped sending heartbeats while it executed the job."""


class ErrorAnswer(HipqError):  # noqa: N818 - a kind of error in a job's history
    """The error of a job that the other system answered with an error."""


def nearest_name(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence, its stop included, with the nearest known name or all."""
    names = sorted(known)
    if not names:
        return "; none is known."
    near = get_close_matches(name, names, n=1)
    if near:
        return f", did you mean {near[0]!r}?"
    return f"; known are {', '.join(names)}."
