"""The tables of options in the reference: `python -m tests.docs.option_tables` writes them anew.

Names, defaults and allowed values are those of the code; what an option means is kept.
"""

from __future__ import annotations

import re

from hipq_django.conf.options import INSTANCE, QUEUE, SOURCE
from hipq_django.domain.options import Options
from hipq_django.flow.settings import FLOW
from tests.docs.documents import REFERENCE, table_of

TABLES = {"instance": INSTANCE, "queue": QUEUE, "source": SOURCE, "flows": FLOW}
HEAD = ["Setting", "Default", "Allowed", "Meaning"]
MARKED = re.compile(r"<!-- options: (\w+) -->\n\n((?:\|.*\n)+)")
NEW = "…"
"""What stands for the meaning of an option that is new: somebody has to write it."""


def written(text: str) -> str:
    """Return the text of a document with its tables as the code has them."""
    return MARKED.sub(
        lambda found: f"<!-- options: {found[1]} -->\n\n{_table(TABLES[found[1]], found[2])}", text
    )


def _table(options: Options, old: str) -> str:
    meanings = {row[0]: row[-1] for row in table_of(old).rows}
    rows = [HEAD]
    for option in options.options:
        name, default = f"`{option.name}`", f"`{_shown(option.default)}`"
        rows.append([name, default, option.allowed, meanings.get(name, NEW)])
    head, *others = [f"| {' | '.join(row)} |\n" for row in rows]
    return "".join((head, f"|{'---|' * len(HEAD)}\n", *others))


def _shown(default: object) -> str:
    return f'"{default}"' if isinstance(default, str) else repr(default)


if __name__ == "__main__":
    for path in REFERENCE.path.glob("*.md"):
        path.write_text(written(path.read_text()))
