"""`WebhookView`: answers from partners that have their own message format."""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase

from hipq_django import events
from hipq_django.conf.instances import get_instance
from hipq_django.conf.rules import DEFAULT, problems
from hipq_django.exceptions import ConfigurationError, ForgedWebhookError, UnknownOptionError
from hipq_django.web.formats import MessageFormat, read
from hipq_django.web.receiving import ReceivingView, RefusedError, read_body, read_json

_REQUIRED = {
    "job_type": "the name of the job type that is answered",
    "key": "a function payload → job key, or the path of a field such as 'data.order'",
    "outcome": "a function payload → Response(…), ErrorResponse(…) or None",
    "verify": "a verifier such as StripeSignature(secret), or say NoVerification()",
}


class WebhookView(ReceivingView):
    """Receives the messages of a partner; their format is declared once for each job type.

    `path("hooks/bank/", WebhookView.as_view(job_type=…, key=…, outcome=…, verify=…))`, or a
    subclass in which these are attributes and methods; `self.request` has the headers.

    200: authentic, and stored, even if it is late, early, repeated or about an unknown job, or
    ignored because it is no answer. 400: a part cannot be read or stored. 403: not authentic. 405,
    413 and 503 as for every `ReceivingView`. Nothing changes unless it is 200.
    """

    job_type: Any = None
    """Name of the job type, or function payload → name."""
    key: Any = None
    """Function payload → job key, or the path of a field of JSON objects."""
    outcome: Any = None
    """Function payload → `Response`, `ErrorResponse`, or None to ignore the message."""
    verify: Any = None
    """Verifier: a callable that takes the request and returns True for an authentic one."""
    message_id: Any = None
    """Function payload → the sender's id of the message, or the path of a field.

    Without it, the verifier's method `message_id` is called, if it has one.
    """
    shard_key: Any = None
    """Function payload → shard key of the job, or the path of a field, if the job was given one."""
    parse: Any = staticmethod(read_json)
    """Function raw body → payload."""
    instance: str = DEFAULT

    @classmethod
    def as_view(cls, **options: Any) -> Callable[..., HttpResponseBase]:
        """Return the view; raise `ConfigurationError` for a part that is missing or invalid.

        Raise `UnknownOptionError` for an option that does not exist.
        """
        known = (*_REQUIRED, "message_id", "shard_key", "parse", "instance")
        for option in options:
            if option not in known and not hasattr(cls, option):
                raise UnknownOptionError(cls.__name__, option, known)
        cls(**options)._check()
        return super().as_view(**options)

    def receive(self, request: HttpRequest, **_: Any) -> JsonResponse:
        """Verify and read the message, and store its answer."""
        body = read_body(request, get_instance(self.instance).callback_max_bytes)
        self._authenticate(request)
        answer = self._format().receive(read("payload", self.parse, body))
        if answer is None:
            events.info("message_ignored", route=self.route, status=200)
            return JsonResponse({"status": "ignored"})
        return JsonResponse({"status": answer.status})

    def _authenticate(self, request: HttpRequest) -> None:
        try:
            authentic = self.verify(request)
        except ForgedWebhookError as error:
            raise RefusedError(403, str(error)) from error
        except (ConfigurationError, InterfaceError, OperationalError):
            raise  # the trouble is on this side
        except Exception as error:  # the project's code, on data from outside
            reason = f"the message cannot be verified: {type(error).__name__}."
            raise RefusedError(403, reason) from error
        if authentic is not True:
            raise RefusedError(403, "the message is not authentic.")

    def _format(self) -> MessageFormat:
        return MessageFormat(
            job_type=self.job_type,
            key=self.key,
            outcome=self.outcome,
            message_id=self._message_id_reader(),
            shard_key=self.shard_key,
            instance=self.instance,
        )

    def _message_id_reader(self) -> Any:
        of_verifier = getattr(self.verify, "message_id", None)
        if self.message_id is not None or not callable(of_verifier):
            return self.message_id
        return lambda _payload: of_verifier(self.request)

    def _check(self) -> None:
        if not any(problems()):  # else the checks say it, which import the URLs first
            get_instance(self.instance)
        where = type(self).__name__
        for option, wanted in _REQUIRED.items():
            if getattr(self, option) is None:
                raise ConfigurationError(f"{where}: {option} is missing; give {wanted}.")
        for option in ("verify", "parse"):
            function = getattr(self, option)
            if not _is_function(function):
                raise ConfigurationError(
                    # Its type only: it might be the secret itself.
                    f"{where}: {option} is of type {type(function).__name__}; give a function or "
                    "a callable object."
                )
        self._format()


def _is_function(value: object) -> bool:
    return callable(value) and not isinstance(value, type) and not iscoroutinefunction(value)
