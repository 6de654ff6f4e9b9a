"""The page on the architecture: its trees are those that import-linter enforces."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from itertools import chain
from subprocess import run

import pytest

from tests.conftest import ROOT
from tests.docs.documents import Document

ARCHITECTURE = Document(ROOT / "docs" / "internals" / "architecture.md")
OF_FLOWS = Document(ROOT / "docs" / "internals" / "architecture-of-flows.md")
PACKAGE = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in sorted((ROOT / "hipq_django").rglob("*.py"))
}
CONTRACTS = {
    contract["name"]: [layer.split(" | ") for layer in contract["layers"]]
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
}


@pytest.mark.parametrize(
    ("page", "contract", "folder", "others"),
    [
        (ARCHITECTURE, "Imports point downwards", "hipq_django", ["apps"]),
        (OF_FLOWS, "Imports of flows point downwards", "hipq_django/flow", ["apps"]),
    ],
)
def test_a_tree_has_the_levels_of_the_contract(
    page: Document, contract: str, folder: str, others: list[str]
) -> None:
    layers = CONTRACTS[contract]
    lines = page.section("The tree").split("```")[1].strip().splitlines()
    named = [line.split()[: len(layer)] for line, layer in zip(lines, layers, strict=True)]

    assert [sorted(level) for level in named] == [sorted(layer) for layer in layers]
    there = {
        path.stem
        for path in (ROOT / folder).iterdir()
        if (path.suffix == ".py" or (path / "__init__.py").exists()) and path.stem != "__init__"
    }
    assert there - {"migrations"} == {*chain.from_iterable(named), *others}


@pytest.mark.embedded
def test_the_files_that_an_action_enters_are_those_that_the_page_counts() -> None:
    walk = run(
        [sys.executable, "-m", "tests.walk"], check=False, cwd=ROOT, capture_output=True, text=True
    )
    counted = dict(re.findall(r"^(.+): (\d+) files$", walk.stdout, re.MULTILINE))
    section = ARCHITECTURE.section("How many files an action enters")

    assert dict(re.findall(r"^\| (.+) \| (\d+) \|$", section, re.MULTILINE)) == {
        "`enqueue`": counted["enqueue"],
        "a pass that claims a job": counted["claiming pass"],
        "writing its result": counted["write"],
        "`complete`": counted["complete"],
    }, walk.stderr


APART = (
    *("hipq_django/engines/", "hipq_django/database/", "hipq_django/migrations/"),
    "hipq_django/flow/migrations/",
)
"""Folders in which SQL may be written."""


def test_whoever_writes_sql_beside_the_engines_is_on_the_page() -> None:
    section = ARCHITECTURE.section("Who writes what")
    knowing = re.compile(r"\.vendor\b|\.cursor\(|\.raw\(|\bas_(postgresql|sqlite)\b|\(SELECT ")
    found = [name for name, text in PACKAGE.items() if knowing.search(text)]
    named = {f"hipq_django/{name}" for name in re.findall(r"`([a-z/_]+\.py)`", section)}

    assert {name for name in found if not name.startswith(APART)} <= named


def test_the_inner_state_of_rows_is_touched_where_the_page_says() -> None:
    inner = re.compile(r"\w\._state\.|\._state = |\bModelState\b|\b(self|row|job)\.__dict__")
    found = {name for name, text in PACKAGE.items() if inner.search(text)}

    assert found == {"hipq_django/engines/rows.py", "hipq_django/models/base.py"}


def test_nobody_but_the_state_machine_writes_the_state_of_jobs() -> None:
    """A filter names these fields too: only what is written is looked for."""
    written = re.compile(r"update\([^)]*\b(has_pending_answer|outcome|phase)=", re.DOTALL)
    allowed = ("hipq_django/transitions/", "hipq_django/engines/", "hipq_django/migrations/")
    found = {name for name, text in PACKAGE.items() if written.search(text)}

    assert not {name for name in found if not name.startswith(allowed)}


def test_the_functions_that_are_longer_than_the_page_says_are_those_it_names() -> None:
    too_long = {
        f"{name}:{function.name}"
        for name, text in PACKAGE.items()
        if "/migrations/" not in name
        for function in ast.walk(ast.parse(text))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        if lines_of_code(function, text) > 30
    }

    assert too_long == {
        "hipq_django/engines/rows.py:read_jobs",
        "hipq_django/engines/statements.py:probe_queues",
        "hipq_django/flow/creating.py:start",
    }


def lines_of_code(function: ast.FunctionDef | ast.AsyncFunctionDef, text: str) -> int:
    """Return how many lines it has without blank ones, comments and its docstring."""
    lines = text.splitlines()
    first = function.body[0]
    if ast.get_docstring(function) is not None:
        said = slice(first.lineno - 1, first.end_lineno)
        lines[said] = [""] * len(lines[said])
    own = lines[function.lineno - 1 : function.end_lineno]
    return len([line for line in own if line.strip() and not line.lstrip().startswith("#")])
