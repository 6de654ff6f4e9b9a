"""The documents as their tests read them: blocks of code, tables, links and headings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.conftest import ROOT

_FENCED = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)\)|(?:src|href)=\"(?P<attribute>[^\"]+)\"")
_TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
_CELL = re.compile(r"(?<!\\)\|")
_CODE = re.compile(r"`([^`]+)`")


class Block(NamedTuple):
    """A fenced block of code."""

    language: str
    text: str

    @property
    def file(self) -> str:
        """The file that its first line names in a comment, '' where it names none."""
        first = self.text.partition("\n")[0]
        return first.removeprefix("# ") if re.fullmatch(r"# [\w/]+\.py", first) else ""


class Table(NamedTuple):
    """A table: the cells of its head, and those of its rows."""

    head: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Document:
    """A Markdown file of the project, or a folder of them that is read as one."""

    path: Path

    @property
    def text(self) -> str:
        """All of it."""
        files = sorted(self.path.glob("*.md")) if self.path.is_dir() else [self.path]
        return "\n".join(file.read_text() for file in files)

    @property
    def prose(self) -> str:
        """The text without blocks of code."""
        return _FENCED.sub("", self.text)

    def blocks(self) -> list[Block]:
        """The fenced blocks, in their order."""
        return [Block(*match.group("language", "text")) for match in _FENCED.finditer(self.text)]

    def links(self) -> Iterator[str]:
        """The targets of all links and images."""
        for match in _LINK.finditer(_CODE.sub("", self.prose)):
            yield match["target"] or match["attribute"]

    def anchors(self) -> set[str]:
        """What a link may name behind the # sign: its headings as GitHub writes them."""
        headings = re.findall(r"^#+ (.+)$", self.prose, re.MULTILINE)
        return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}

    def section(self, heading: str) -> str:
        """The text under a heading, up to the next one of its rank or above."""
        start = re.search(rf"^(#+) {re.escape(heading)}$", self.text, re.MULTILINE)
        assert start, f"{self.path.name} has no heading {heading!r}"
        rest = self.text[start.end() :]
        end = re.search(rf"^#{{1,{len(start[1])}}} ", _without_code(rest), re.MULTILINE)
        return rest[: end.start()] if end else rest

    def tables(self, heading: str = "") -> list[Table]:
        """The tables under a heading, all of the document's where none is given."""
        text = self.section(heading) if heading else self.text
        return [table_of(match[0]) for match in _TABLE.finditer(_without_code(text))]

    def rows(self, heading: str) -> list[list[str]]:
        """The rows of all tables under a heading."""
        return [row for table in self.tables(heading) for row in table.rows]

    def headed(self, head: str) -> list[list[str]]:
        """The rows of all tables whose first column has this head."""
        return [row for table in self.tables() if table.head[0] == head for row in table.rows]


def table_of(text: str) -> Table:
    """Return the cells of a table."""
    lines = ([cell.strip() for cell in _CELL.split(line)[1:-1]] for line in text.splitlines())
    head, _, *rows = lines
    return Table(head, rows)


def codes_of(text: str) -> list[str]:
    """Return all pieces of code in a text."""
    return _CODE.findall(text)


def _without_code(text: str) -> str:
    """Return the text, of the same length, without what in code looks like headings or tables."""
    return _FENCED.sub(lambda match: re.sub("[#|]", "-", match[0]), text)


README = Document(ROOT / "README.md")
INDEX = Document(ROOT / "docs" / "index.md")
GUARANTEES = Document(ROOT / "docs" / "guarantees.md")
OPERATIONS = Document(ROOT / "docs" / "operations.md")
REFERENCE = Document(ROOT / "docs" / "reference")


def all_documents() -> list[Document]:
    """Return every Markdown file of the project, those of environments and caches left out."""
    folders = [ROOT, ROOT / "docs", *(ROOT / "docs").rglob("*/")]
    folders += (ROOT / "example_project", *(ROOT / "example_project").rglob("*/"))
    return [Document(path) for folder in folders for path in sorted(folder.glob("*.md"))]
