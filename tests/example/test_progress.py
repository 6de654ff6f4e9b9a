"""The line that shows how far the demo is."""

from io import StringIO

import pytest
from django.core.management.base import OutputWrapper

from example_project.demo.progress import Progress

pytestmark = pytest.mark.embedded  # no database is touched


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def shown(out: StringIO) -> str:
    progress = Progress(OutputWrapper(out))
    for line in ("1 of 20", "1 of 20", "20 left", "all"):
        progress.show(line)
    progress.end()
    return out.getvalue()


def test_a_terminal_has_one_line_that_changes() -> None:
    assert shown(Terminal()) == "\r1 of 20\r20 left\rall    \n"


def test_elsewhere_there_are_plain_lines_not_more_than_one_a_second() -> None:
    assert shown(StringIO()) == "1 of 20\n"
