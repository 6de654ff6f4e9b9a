"""The tables of options in the reference: `python -m tests.docs.option_tables` writes them anew.

Names, defaults and allowed values are those of the code; what an option means is kept, and so is a
default that the code has no value for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from hipq_django.conf.options import INSTANCE, QUEUE, SOURCE
from hipq_django.domain.drafts import JOB_OPTIONS
from hipq_django.domain.job_options import OF_TYPES
from hipq_django.domain.options import Options
from hipq_django.flow.settings import FLOW
from hipq_django.job_types.declaration import TYPE_OPTIONS
from tests.docs.documents import REFERENCE, table_of

MARKED = re.compile(r"<!-- options: ([\w ]+) -->\n\n((?:\|.*\n)+)")
KEPT = "…"
"""Stands for a cell that is kept as it is written. Of a new option somebody has to write it."""

Rows = list[list[str]]


def of_setting(options: Options) -> Rows:
    """Return the table of a place of the setting."""
    rows = [[f"`{o.name}`", f"`{_shown(o.default)}`", o.allowed, KEPT] for o in options.options]
    return [["Setting", "Default", "Allowed", "Meaning"], *rows]


def of_jobs(names: Iterable[str], *, has_defaults: bool) -> Rows:
    """Return the table of the options of jobs, or of job types, which have the defaults."""
    plain = {o.name: f"`{o.default}`" for o in OF_TYPES if has_defaults and o.default}
    rows = [[f"`{name}`", plain.get(name, KEPT), KEPT] for name in names]
    return [["Option", "Default", "Meaning"], *rows]


def _shown(default: object) -> str:
    return f'"{default}"' if isinstance(default, str) else repr(default)


TABLES = {
    "instance": of_setting(INSTANCE),
    "queue": of_setting(QUEUE),
    "source": of_setting(SOURCE),
    "flows": of_setting(FLOW),
    "job type": of_jobs(("queue", "instance", *TYPE_OPTIONS), has_defaults=True),
    "job": of_jobs((*JOB_OPTIONS, "on_conflict", "instance"), has_defaults=False),
}


def written(text: str) -> str:
    """Return the text of a document with its tables as the code has them."""
    return MARKED.sub(
        lambda found: f"<!-- options: {found[1]} -->\n\n{_table(*found.groups())}", text
    )


def _table(name: str, text: str) -> str:
    old = {row[0]: row for row in table_of(text).rows}
    lines = []
    for row in TABLES[name]:
        known = old.get(row[0], row)
        cells = [was if cell == KEPT else cell for cell, was in zip(row, known, strict=True)]
        lines.append(f"| {' | '.join(cells)} |\n")
    return "".join((lines[0], f"|{'---|' * len(TABLES[name][0])}\n", *lines[1:]))


if __name__ == "__main__":
    for path in REFERENCE.path.glob("*.md"):
        path.write_text(written(path.read_text()))
