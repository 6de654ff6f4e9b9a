"""The messages of W9's source."""

from __future__ import annotations

from typing import TYPE_CHECKING

import hipq_django as hipq

if TYPE_CHECKING:
    from hipq_django.sources import Received


def read(received: Received) -> hipq.NewAnswer:
    """Return the answer that a message is."""
    message = received.json()
    return hipq.NewAnswer("ask", message["order"], response=message["response"])
