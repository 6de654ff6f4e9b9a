"""The callback that the other system POSTs its answer to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.http import HttpRequest, JsonResponse

from hipq_django.answers import answer_callback
from hipq_django.callbacks import read_token
from hipq_django.conf import get_instance
from hipq_django.exceptions import ConfigurationError, ForgedCallbackError, InvalidAnswerError
from hipq_django.models import Answer
from hipq_django.receiving import ReceivingView, RefusedError, read_body, read_json

if TYPE_CHECKING:
    from hipq_django.callbacks import Token
    from hipq_django.conf import InstanceSettings


class CallbackView(ReceivingView):
    """Takes `{"response": …}` or `{"error": …}` for the attempt that the URL was signed for.

    200: stored, also when it was stored before. 410: the job was settled otherwise; the answer is
    kept as late. 403: the URL is forged. 400: not JSON, or not of this form. 413: too large.
    405: anything but POST. 503: the database failed.
    """

    def receive(self, request: HttpRequest, *, token: str) -> JsonResponse:  # type: ignore[override]
        """Store the answer and say what became of it."""
        checked, config = _read_url(token)
        kind, payload = _read_answer(read_body(request, config.callback_max_bytes))
        answer = answer_callback(checked, kind, payload)
        gone = answer.status == Answer.Status.LATE or answer.job_id is None
        return JsonResponse({"status": answer.status}, status=410 if gone else 200)


def _read_url(text: str) -> tuple[Token, InstanceSettings]:
    try:
        token = read_token(text)
        return token, get_instance(token.instance)
    except (ForgedCallbackError, ConfigurationError) as error:
        raise RefusedError(403, str(error)) from error


def _read_answer(body: bytes) -> tuple[str, Any]:
    form = 'send {"response": …} or {"error": …}.'
    try:
        data = read_json(body)
    except InvalidAnswerError as error:
        raise InvalidAnswerError(f"{str(error).removesuffix('.')}; {form}") from error
    if not isinstance(data, dict):
        raise InvalidAnswerError(f"the body is not a JSON object; {form}")
    has_error = data.get("error") is not None
    if has_error == ("response" in data and not (has_error and data["response"] is None)):
        raise InvalidAnswerError(f"the body must have one of response and error; {form}")
    return (
        (Answer.Kind.ERROR, data["error"])
        if has_error
        else (Answer.Kind.RESPONSE, data["response"])
    )
