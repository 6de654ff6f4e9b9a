"""The callback view, to which the other system POSTs progress and then its answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import unquote

from django.http import HttpRequest, JsonResponse

from hipq_django.answers.api import answer_callback
from hipq_django.answers.callback_urls import SealedToken, Token, read_token
from hipq_django.api.reporting import extend_callback, progress_callback
from hipq_django.conf.instances import InstanceSettings, get_instance
from hipq_django.exceptions import (
    ConfigurationError,
    ForgedCallbackError,
    InvalidAnswerError,
    InvalidJobError,
)
from hipq_django.models import Answer
from hipq_django.web.receiving import ReceivingView, RefusedError, read_body, read_json

FORM = (
    'send one of {"response": …}, {"error": …}, {"progress": {"percent": 40, "message": "…"}} and '
    '{"extend": seconds}.'
)


class CallbackView(ReceivingView):
    """Takes `{"response": …}`, `{"error": …}`, `{"progress": {"percent": …, "message": …}}` or
    `{"extend": seconds}` for the attempt that the URL was signed for.

    200: stored, also if it was stored before. 410: the job has another answer or has ended; this
    answer is kept as late. 409: progress or an extension for an attempt that is not running. 403:
    the URL is forged. 400: not JSON, or not of this form. 413: too large. 405: anything but POST.
    503: the database failed.
    """

    def setup(self, request: HttpRequest, *args: Any, **captured: Any) -> None:
        """Set up the view, with the token removed from the request."""
        super().setup(request, *args, **captured)
        _hide_path(request, self.route)

    def receive(  # type: ignore[override]  # the URL gives it more
        self, request: HttpRequest, *, token: SealedToken
    ) -> JsonResponse:
        """Store what was sent and say what became of it."""
        checked, config = _read_url(token.text)
        verb, value = _read_verb(read_body(request, config.callback_max_bytes))
        try:
            return _VERBS[verb](checked, value)
        except InvalidJobError as error:
            raise InvalidAnswerError(f"{verb}: {error}") from error


def _hide_path(request: HttpRequest, route: str) -> None:
    """Replace the path, which is as good as a password, by the route.

    For each reply with a status of 400 or above, Django writes the path into its log and its mails
    to the admins, and so does other code that looks at the request.
    """
    path, shown = request.path_info, f"/{route}"
    for name, value in request.META.items():
        if isinstance(value, str) and (path in value or ("%" in value and path in unquote(value))):
            request.META[name] = shown
    request.path = request.path_info = shown


def _read_url(text: str) -> tuple[Token, InstanceSettings]:
    try:
        token = read_token(text)
        return token, get_instance(token.instance)
    except (ForgedCallbackError, ConfigurationError) as error:
        raise RefusedError(403, str(error)) from error


def _read_verb(body: bytes) -> tuple[str, Any]:
    """Return the one key of the body that counts, and its value; nulls beside it are ignored."""
    try:
        data = read_json(body)
    except InvalidAnswerError as error:
        raise InvalidAnswerError(f"{str(error).removesuffix('.')}; {FORM}") from error
    if not isinstance(data, dict):
        raise InvalidAnswerError(f"the body is not a JSON object; {FORM}")
    said = [verb for verb in _VERBS if data.get(verb) is not None]
    if not said and "response" in data:
        return "response", None
    if len(said) != 1:
        raise InvalidAnswerError(f"the body must say one thing; {FORM}")
    return said[0], data[said[0]]


def _answer(kind: str, token: Token, value: Any) -> JsonResponse:
    answer = answer_callback(token, kind, value)
    unused = answer.status in (Answer.Status.LATE, Answer.Status.UNMATCHED)
    gone = unused or answer.job_id is None
    return JsonResponse({"status": answer.status}, status=410 if gone else 200)


def _progress(token: Token, report: Any) -> JsonResponse:
    if not isinstance(report, dict) or "percent" not in report:
        raise InvalidAnswerError(f"progress is not an object with a percent; {FORM}")
    known = progress_callback(token, report["percent"], report.get("message", ""))
    return JsonResponse({"status": "stored"}) if known else _not_running()


def _extend(token: Token, seconds: Any) -> JsonResponse:
    deadline = extend_callback(token, seconds)
    if deadline is None:
        return _not_running()
    return JsonResponse({"status": "stored", "deadline": deadline.isoformat()})


def _not_running() -> JsonResponse:
    return JsonResponse({"error": "this attempt is not running; nothing was changed."}, status=409)


_VERBS: dict[str, Callable[[Token, Any], JsonResponse]] = {
    "response": partial(_answer, Answer.Kind.RESPONSE),
    "error": partial(_answer, Answer.Kind.ERROR),
    "progress": _progress,
    "extend": _extend,
}
