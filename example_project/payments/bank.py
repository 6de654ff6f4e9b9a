"""How the shop talks to the bank."""

import json
from typing import Any
from urllib.request import Request, urlopen

from django.conf import settings

# Shorter than the job's timeout, so that a job never runs out of time inside this call.
HTTP_TIMEOUT_SECONDS = 2


def request_payment(payment: dict[str, Any], *, idempotency_key: str) -> None:
    """Ask the bank for a payment; it confirms at once and answers later.

    Raise `OSError` where the bank cannot be reached or does not take the request.
    """
    request = Request(  # noqa: S310 - the address is a setting, not a user's input
        settings.BANK_URL,
        data=json.dumps(payment).encode(),
        headers={"Content-Type": "application/json", "Idempotency-Key": idempotency_key},
    )
    with urlopen(request, timeout=HTTP_TIMEOUT_SECONDS):  # noqa: S310 - as above
        pass
