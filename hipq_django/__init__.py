"""A durable job queue in the Django project's own database, for jobs whose answer comes later.

The package is imported before models may be, so public names are loaded on first use (PEP 562).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hipq_django.answers import acomplete, afail, complete, fail, receive_many
    from hipq_django.api import (
        aenqueue,
        aenqueue_many,
        cancel,
        enqueue,
        enqueue_many,
        requeue,
        run_now,
    )
    from hipq_django.callbacks import callback_url
    from hipq_django.declarations import job_type
    from hipq_django.definitions import NewAnswer, NewJob
    from hipq_django.exceptions import (
        ConfigurationError,
        DuplicateJobKeyError,
        ErrorAnswer,
        ForgedCallbackError,
        ForgedWebhookError,
        HipqError,
        InvalidAnswerError,
        InvalidJobError,
        InvalidJobTypeError,
        JobTimeout,
        UnknownOptionError,
        WorkerLost,
    )
    from hipq_django.formats import ErrorResponse, Response
    from hipq_django.parts import WAIT_FOR
    from hipq_django.reasons import Reason, explain
    from hipq_django.retries import (
        WAIT,
        Exponential,
        Fixed,
        GiveUp,
        Never,
        RetryAt,
        RetryIn,
        Snooze,
    )
    from hipq_django.running import aextend, aprogress, extend, progress
    from hipq_django.throttling import (
        Hold,
        KeyLimit,
        RateLimit,
        Reschedule,
        Run,
        ShareLimit,
    )
    from hipq_django.verifiers import (
        GitHubSignature,
        NoVerification,
        SharedSecret,
        StripeSignature,
    )
    from hipq_django.webhooks import WebhookView
    from hipq_django.windows import TimeWindow

__version__ = "0.1.0"

_HOMES = {
    "answers": ("acomplete", "afail", "complete", "fail", "receive_many"),
    "api": (
        "aenqueue",
        "aenqueue_many",
        "cancel",
        "enqueue",
        "enqueue_many",
        "requeue",
        "run_now",
    ),
    "callbacks": ("callback_url",),
    "declarations": ("job_type",),
    "definitions": ("NewAnswer", "NewJob"),
    "exceptions": (
        "ConfigurationError",
        "DuplicateJobKeyError",
        "ErrorAnswer",
        "ForgedCallbackError",
        "ForgedWebhookError",
        "HipqError",
        "InvalidAnswerError",
        "InvalidJobError",
        "InvalidJobTypeError",
        "JobTimeout",
        "UnknownOptionError",
        "WorkerLost",
    ),
    "formats": ("ErrorResponse", "Response"),
    "parts": ("WAIT_FOR",),
    "reasons": ("Reason", "explain"),
    "retries": (
        "WAIT",
        "Exponential",
        "Fixed",
        "GiveUp",
        "Never",
        "RetryAt",
        "RetryIn",
        "Snooze",
    ),
    "running": ("aextend", "aprogress", "extend", "progress"),
    "throttling": ("Hold", "KeyLimit", "RateLimit", "Reschedule", "Run", "ShareLimit"),
    "verifiers": ("GitHubSignature", "NoVerification", "SharedSecret", "StripeSignature"),
    "webhooks": ("WebhookView",),
    "windows": ("TimeWindow",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "WAIT",
    "WAIT_FOR",
    "ConfigurationError",
    "DuplicateJobKeyError",
    "ErrorAnswer",
    "ErrorResponse",
    "Exponential",
    "Fixed",
    "ForgedCallbackError",
    "ForgedWebhookError",
    "GitHubSignature",
    "GiveUp",
    "HipqError",
    "Hold",
    "InvalidAnswerError",
    "InvalidJobError",
    "InvalidJobTypeError",
    "JobTimeout",
    "KeyLimit",
    "Never",
    "NewAnswer",
    "NewJob",
    "NoVerification",
    "RateLimit",
    "Reason",
    "Reschedule",
    "Response",
    "RetryAt",
    "RetryIn",
    "Run",
    "ShareLimit",
    "SharedSecret",
    "Snooze",
    "StripeSignature",
    "TimeWindow",
    "UnknownOptionError",
    "WebhookView",
    "WorkerLost",
    "__version__",
    "acomplete",
    "aenqueue",
    "aenqueue_many",
    "aextend",
    "afail",
    "aprogress",
    "callback_url",
    "cancel",
    "complete",
    "enqueue",
    "enqueue_many",
    "explain",
    "extend",
    "fail",
    "job_type",
    "progress",
    "receive_many",
    "requeue",
    "run_now",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
