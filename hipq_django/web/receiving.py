"""The base of the views that other systems call: limits, refusals, outages."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import PurePath
from traceback import extract_tb
from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.core.handlers.wsgi import WSGIRequest
from django.db import DataError, Error, connections, transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.request import RawPostDataException
from django.http.response import HttpResponseBase
from django.views import View
from django.views.decorators.csrf import csrf_exempt

from hipq_django import events
from hipq_django.database.errors import said_of
from hipq_django.exceptions import ConfigurationError, InvalidAnswerError

RETRY_AFTER_SECONDS = 30


class RefusedError(Exception):
    """The request is refused with this status and reason; nothing was changed."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class ReceivingView(View):
    """Receives POSTs from other systems.

    400: the message is malformed. 411: its length is missing. 413: it is too large. 405: anything
    but POST. 503: the configuration failed, and the sender should try again. Each of these changes
    nothing. 503 also: the database failed, maybe only after the commit; a repeat does no harm.
    """

    http_method_names = ["post"]

    @classmethod
    def as_view(cls, **options: Any) -> Callable[..., HttpResponseBase]:
        """Return the view; it commits what it confirms, whatever ATOMIC_REQUESTS says.

        No middleware asks for a log-in or a CSRF token first: the callers say by other means who
        they are, and a redirect would lose the body.
        """
        view = login_not_required(csrf_exempt(super().as_view(**options)))
        for alias in connections:
            view = transaction.non_atomic_requests(using=alias)(view)
        return view

    def post(self, request: HttpRequest, *_: Any, **captured: Any) -> HttpResponse:
        """Receive the message, and say what became of it or why it is refused."""
        try:
            return self.receive(request, **captured)
        except RefusedError as error:
            return self.refuse(error.status, str(error), error)
        except (InvalidAnswerError, DataError) as error:
            reason = str(error) if isinstance(error, InvalidAnswerError) else _NOT_STORABLE
            return self.refuse(400, reason, error)
        except ConfigurationError as error:
            return self.put_off("this site is not set up for the message", error)
        except Error as error:  # maybe after the commit, whose reply was lost
            return self.put_off("the database failed", error, _UNKNOWN)

    def receive(self, request: HttpRequest, **captured: Any) -> HttpResponse:
        """Take the message of a request; raise `RefusedError` or `InvalidAnswerError`."""
        raise NotImplementedError

    def refuse(self, status: int, reason: str, error: Exception) -> JsonResponse:
        """Tell the sender why; the log has neither content nor secrets."""
        # The text of an answer's error quotes the answer; the text of a refusal does not.
        said = reason if isinstance(error, RefusedError) else ""
        events.warning("request_refused", said, route=self.route, status=status, **_cause(error))
        return JsonResponse({"error": reason}, status=status)

    def put_off(self, reason: str, error: Exception, more: str = "") -> JsonResponse:
        """Ask the sender to try again, because the fault is on this side."""
        sentence = f"{reason}: {said_of(error)}"
        events.error("request_put_off", sentence, route=self.route, status=503)
        headers = {"Retry-After": str(RETRY_AFTER_SECONDS)}
        return JsonResponse({"error": f"{reason}{more}; try again."}, status=503, headers=headers)

    @property
    def route(self) -> str:
        """The address for the log: the pattern, because the path may contain a token."""
        match = self.request.resolver_match
        return match.route if match else "-"


_UNKNOWN = ", and it is unknown whether anything was stored"
_NOT_STORABLE = "the database cannot store the message."


def _cause(error: BaseException) -> dict[str, Any]:
    """Return the class and place of the first exception; its message may quote the request."""
    while error.__cause__ is not None:
        error = error.__cause__
    frames = extract_tb(error.__traceback__)
    place = f"{PurePath(frames[-1].filename).name}:{frames[-1].lineno}" if frames else None
    return {"error": type(error).__name__, "at": place}


def read_body(request: HttpRequest, limit: int) -> bytes:
    """Return the raw body of a request; raise `RefusedError` beyond `limit` bytes.

    Or beyond what Django takes, which itself looks only at the length that a header tells.
    """
    if settings.DATA_UPLOAD_MAX_MEMORY_SIZE is not None:
        limit = min(limit, settings.DATA_UPLOAD_MAX_MEMORY_SIZE)
    too_large = f"the body is larger than {limit} bytes."
    try:
        length = int(request.META.get("CONTENT_LENGTH") or 0)
        if not length:
            _read_pieces(request, limit)
        body = request.body if length <= limit else b""
    except (RawPostDataException, OSError, ValueError) as error:  # such as `UnreadablePostError`
        raise RefusedError(400, "the body could not be read.") from error
    if length > limit or len(body) > limit:
        raise RefusedError(413, too_large)
    return body


def _read_pieces(request: HttpRequest, limit: int) -> None:
    """Read a body that comes in pieces, whose length no header tells: at most a byte too much.

    Django takes it for empty under WSGI, although most servers can tell where it ends.
    """
    if getattr(request, "_body", b""):  # a middleware of the project did the same
        return
    stream = _pieces_under_wsgi(request) if isinstance(request, WSGIRequest) else _unread(request)
    if stream is None:
        return
    pieces = bytearray()
    while len(pieces) <= limit and (piece := stream.read(limit + 1 - len(pieces))):
        pieces += piece
    request._body = bytes(pieces)  # where Django itself keeps it


def _unread(request: Any) -> Any:
    """Return the request to read from under ASGI; None if a middleware has begun."""
    return None if request._read_started else request


def _pieces_under_wsgi(request: WSGIRequest) -> Any:
    """Return what such a body is read from; None if there is none."""
    if "chunked" not in request.META.get("HTTP_TRANSFER_ENCODING", "").lower():
        return None
    if not request.META.get("wsgi.input_terminated"):
        raise RefusedError(411, "the server of this site needs the header Content-Length.")
    return request.META["wsgi.input"]


def read_json(body: bytes) -> Any:
    """Return the JSON of a body; raise `InvalidAnswerError` unless it is JSON in UTF-8.

    It may begin with a byte order mark, as some systems write it.
    """
    try:
        return json.loads(body.decode("utf-8-sig"), parse_constant=_refuse_constant)
    except RecursionError as error:
        raise InvalidAnswerError("the body is JSON that is nested too deeply.") from error
    except ValueError as error:
        raise InvalidAnswerError("the body is not JSON in UTF-8.") from error


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
