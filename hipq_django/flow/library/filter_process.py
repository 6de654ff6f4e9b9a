"""The process of `flow.filter`: reads programs of jq with values, line by line, and answers each.

Run as a file, not imported: it knows nothing of Django. Its memory is bounded by itself.
"""

from __future__ import annotations

import json
import sys
from typing import Any

MAX_BYTES = 256 << 20


def main() -> None:
    """Answer each line until there are no more."""
    import resource

    import jq

    resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
    for line in sys.stdin:
        program, value = json.loads(line)
        print(json.dumps(answer(jq, program, value)), flush=True)  # noqa: T201 - this is the answer


def answer(jq: Any, program: str, value: Any) -> dict[str, Any]:
    """Return the values that a program makes of one, or what is wrong with it."""
    try:
        return {"values": jq.compile(program).input_value(value).all()}
    except ValueError as error:
        return {"error": " ".join(str(error).split())}


if __name__ == "__main__":
    main()
