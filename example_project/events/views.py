"""The endpoint that other systems send events to."""

import json

from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

import hipq_django as hipq
from example_project.events.jobs import store_event

FORM = 'send {"id": "e-1", "account": "acme", "name": "page viewed"}'


@csrf_exempt  # the senders are programs, which have no cookies of ours
@require_POST
def receive(request: HttpRequest) -> JsonResponse:
    """Enqueue the event and confirm it; 400 where it is none.

    All that the sender waits for is one statement. An event that is sent again while its job is
    still there is the same job.
    """
    try:
        data = read_event(request.body)
        store_event.enqueue(data, job_key=data["id"], on_conflict="return")
    except (ValueError, hipq.InvalidJobError) as error:
        return JsonResponse({"error": str(error)}, status=400)
    return JsonResponse({"status": "queued"}, status=202)


def read_event(body: bytes) -> dict[str, str]:
    """Return the event of a request; raise `ValueError` where there is none."""
    try:
        data = json.loads(body)
        event = {key: data[key] for key in ("id", "account", "name")}
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"this is no event: {FORM}") from error
    if not all(isinstance(text, str) and 0 < len(text) <= 100 for text in event.values()):
        raise ValueError(f"id, account and name are texts of 1 to 100 characters: {FORM}")
    return event
