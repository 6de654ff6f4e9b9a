"""A durable job queue in the Django project's own database, for jobs whose answer comes later.

The package is imported before models may be, so public names are loaded on first use (PEP 562).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hipq_django.answers.api import (
        acomplete as acomplete,
        afail as afail,
        areceive_many as areceive_many,
        complete as complete,
        fail as fail,
        receive_many as receive_many,
    )
    from hipq_django.answers.callback_urls import callback_url as callback_url
    from hipq_django.api.control import (
        acancel as acancel,
        areprioritize as areprioritize,
        areschedule as areschedule,
        arun_now as arun_now,
        cancel as cancel,
        reprioritize as reprioritize,
        reschedule as reschedule,
        run_now as run_now,
    )
    from hipq_django.api.enqueueing import (
        aenqueue as aenqueue,
        aenqueue_many as aenqueue_many,
        arequeue as arequeue,
        enqueue as enqueue,
        enqueue_many as enqueue_many,
        requeue as requeue,
    )
    from hipq_django.api.reporting import (
        aextend as aextend,
        aprogress as aprogress,
        extend as extend,
        progress as progress,
    )
    from hipq_django.domain.drafts import NewAnswer as NewAnswer, NewJob as NewJob
    from hipq_django.domain.parts import WAIT_FOR as WAIT_FOR
    from hipq_django.domain.retries import (
        WAIT as WAIT,
        Exponential as Exponential,
        Fixed as Fixed,
        GiveUp as GiveUp,
        Never as Never,
        RetryAt as RetryAt,
        RetryIn as RetryIn,
        Snooze as Snooze,
    )
    from hipq_django.domain.throttling import (
        Hold as Hold,
        KeyLimit as KeyLimit,
        RateLimit as RateLimit,
        Reschedule as Reschedule,
        Run as Run,
        ShareLimit as ShareLimit,
    )
    from hipq_django.domain.windows import TimeWindow as TimeWindow
    from hipq_django.exceptions import (
        ConfigurationError as ConfigurationError,
        DuplicateJobKeyError as DuplicateJobKeyError,
        ErrorAnswer as ErrorAnswer,
        ForgedCallbackError as ForgedCallbackError,
        ForgedWebhookError as ForgedWebhookError,
        HipqError as HipqError,
        InvalidAnswerError as InvalidAnswerError,
        InvalidJobError as InvalidJobError,
        InvalidJobTypeError as InvalidJobTypeError,
        JobTimeout as JobTimeout,
        UnknownOptionError as UnknownOptionError,
        WorkerLost as WorkerLost,
    )
    from hipq_django.job_types.registry import job_type as job_type
    from hipq_django.models import Job as Job, Queue as Queue
    from hipq_django.monitoring.reasons import (
        Reason as Reason,
        aexplain as aexplain,
        explain as explain,
    )
    from hipq_django.web.formats import ErrorResponse as ErrorResponse, Response as Response
    from hipq_django.web.verifiers import (
        GitHubSignature as GitHubSignature,
        NoVerification as NoVerification,
        SharedSecret as SharedSecret,
        ShopifySignature as ShopifySignature,
        SlackSignature as SlackSignature,
        StandardWebhooksSignature as StandardWebhooksSignature,
        StripeSignature as StripeSignature,
    )
    from hipq_django.web.webhook_view import WebhookView as WebhookView

__version__ = "0.1.0"

_HOMES = {
    "answers.api": "acomplete afail areceive_many complete fail receive_many",
    "answers.callback_urls": "callback_url",
    "api.control": (
        "acancel areprioritize areschedule arun_now cancel reprioritize reschedule run_now"
    ),
    "api.enqueueing": "aenqueue aenqueue_many arequeue enqueue enqueue_many requeue",
    "api.reporting": "aextend aprogress extend progress",
    "domain.drafts": "NewAnswer NewJob",
    "domain.parts": "WAIT_FOR",
    "domain.retries": "Exponential Fixed GiveUp Never RetryAt RetryIn Snooze WAIT",
    "domain.throttling": "Hold KeyLimit RateLimit Reschedule Run ShareLimit",
    "domain.windows": "TimeWindow",
    "exceptions": (
        "ConfigurationError DuplicateJobKeyError ErrorAnswer ForgedCallbackError "
        "ForgedWebhookError HipqError InvalidAnswerError InvalidJobError InvalidJobTypeError "
        "JobTimeout UnknownOptionError WorkerLost"
    ),
    "web.formats": "ErrorResponse Response",
    "job_types.registry": "job_type",
    "models": "Job Queue",
    "monitoring.reasons": "Reason aexplain explain",
    "web.verifiers": (
        "GitHubSignature NoVerification SharedSecret ShopifySignature SlackSignature "
        "StandardWebhooksSignature StripeSignature"
    ),
    "web.webhook_view": "WebhookView",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = ["__version__", *sorted(_HOME_OF)]  # noqa: PLE0604 - all of them are text


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
