"""What the supplier's messages mean. Named by MAP in the setting, called by `hipq_consume`."""

from typing import Any

import hipq_django as hipq
from hipq_django.sources import IGNORE, Received


def read(message: Received) -> Any:
    """Return the answer that a message is.

    Whatever this raises, the message is kept in the inbox as malformed, with the error.
    """
    content = message.json()
    if content["customer"] != "hipq-shop":
        return IGNORE  # the supplier tells all its customers on one topic
    if content["status"] == "refused":
        reason = content["reason"] or "refused"
        return hipq.NewAnswer("place_order", content["reference"], error=reason)
    return hipq.NewAnswer("place_order", content["reference"], response={"days": content["days"]})
