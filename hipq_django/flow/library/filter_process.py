"""The process of `flow.filter`: reads programs of jq with values, line by line, and answers each.

Run as a file, not imported: it knows nothing of Django. It bounds its memory itself, and lets
itself open no file: a program of jq reads modules and data by `import` and `include`.
"""

from __future__ import annotations

import json
import sys
from typing import Any

MAX_BYTES = 256 << 20
OF_MODULES = ("module not found", "error loading data file")
"""What jq says of a file that is not there, and of one that it may not open."""


def main() -> None:
    """Answer each line until there are no more."""
    import resource

    import jq

    resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))  # what is open stays open
    for line in sys.stdin:
        program, value, most = json.loads(line)
        print(checked(answer(jq, program, value), most), flush=True)  # noqa: T201 - this is the answer


def checked(found: dict[str, Any], most: int) -> str:
    """Return an answer as a line, or what is wrong with it: whoever asked has to hold all of it."""
    values = json.dumps(found.get("values"), ensure_ascii=False)
    if len(values.encode(errors="surrogatepass")) > most:
        text = f"makes more than {most:,} bytes of JSON of one message (setting FLOW: "
        found = {"error": f"it {text}MAX_MESSAGE_BYTES); let it make less."}
    return json.dumps(found)


def answer(jq: Any, program: str, value: Any) -> dict[str, Any]:
    """Return the values that a program makes of one, or what is wrong with it."""
    try:
        return {"values": jq.compile(program).input_value(value).all()}
    except ValueError as error:
        said = " ".join(str(error).split())
        if any(sign in said for sign in OF_MODULES):
            said = "it reads a module, which is not there."
        return {"error": said}


if __name__ == "__main__":
    main()
