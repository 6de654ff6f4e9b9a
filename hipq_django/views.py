"""The callback that the other system POSTs its answer to."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, JsonResponse, UnreadablePostError
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_exempt

from hipq_django.answers import answer_callback
from hipq_django.callbacks import read_token
from hipq_django.conf import get_instance
from hipq_django.exceptions import ConfigurationError, ForgedCallbackError, InvalidAnswerError
from hipq_django.models import Answer

if TYPE_CHECKING:
    pass


class _RefusedError(Exception):
    """The request is answered with this status and reason; nothing was changed."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@method_decorator(csrf_exempt, name="dispatch")
class CallbackView(View):
    """Takes `{"response": …}` or `{"error": …}` for the attempt that the URL was signed for.

    200: stored, also when it was stored before. 410: the job was settled otherwise; the answer is
    kept as late. 403: the URL is forged. 400: not JSON, or not of this form. 413: too large.
    405: anything but POST.
    """

    http_method_names = ["post"]

    def post(self, request: HttpRequest, token: str) -> JsonResponse:
        """Store the answer and say what became of it."""
        try:
            answer = self._take(request, token)
        except _RefusedError as refused:
            return JsonResponse({"error": str(refused)}, status=refused.status)
        gone = answer.status == Answer.Status.LATE or answer.job_id is None
        return JsonResponse({"status": answer.status}, status=410 if gone else 200)

    def _take(self, request: HttpRequest, text: str) -> Answer:
        try:
            token = read_token(text)
            limit = get_instance(token.instance).callback_max_bytes
            kind, payload = _read_answer(_read_body(request, limit))
            return answer_callback(token, kind, payload)
        except (ForgedCallbackError, ConfigurationError) as error:
            raise _RefusedError(403, str(error)) from error
        except InvalidAnswerError as error:
            raise _RefusedError(400, str(error)) from error


def _read_body(request: HttpRequest, limit: int) -> bytes:
    too_large = f"the body is larger than {limit} bytes."
    try:
        length = int(request.META.get("CONTENT_LENGTH") or 0)
        body = request.body if length <= limit else b""
    except (RequestDataTooBig, ValueError) as error:
        raise _RefusedError(413, too_large) from error
    except UnreadablePostError as error:
        raise _RefusedError(400, "the body could not be read.") from error
    if length > limit or len(body) > limit:
        raise _RefusedError(413, too_large)
    return body


def _read_answer(body: bytes) -> tuple[str, Any]:
    form = 'send {"response": …} or {"error": …}.'
    try:
        data = json.loads(body.decode())
    except (ValueError, RecursionError) as error:
        raise _RefusedError(400, f"the body is not JSON in UTF-8; {form}") from error
    if not isinstance(data, dict):
        raise _RefusedError(400, f"the body is not a JSON object; {form}")
    has_error = data.get("error") is not None
    if has_error == ("response" in data and not (has_error and data["response"] is None)):
        raise _RefusedError(400, f"the body must have one of response and error; {form}")
    return (
        (Answer.Kind.ERROR, data["error"])
        if has_error
        else (Answer.Kind.RESPONSE, data["response"])
    )
