"""Each case of SideJob is a test of its number, and a row of the document about it."""

import ast
import re

from tests.conftest import ROOT

CASES = set(range(1, 103))
PUBLIC = {"hipq_django", "hipq_django.flow", "hipq_django.testing"}
MODULES = list((ROOT / "tests" / "flow" / "cases").glob("test_*.py"))


def test_each_case_is_a_test_of_its_number() -> None:
    code = [path.read_text() for path in MODULES]
    found = {int(n) for text in code for n in re.findall(r"^def test_case_(\d{3})", text, re.M)}

    assert found == CASES


def test_each_case_is_described() -> None:
    rows = re.findall(r"^\| (\d[\d, ]*) \|", (ROOT / "docs" / "sidejob.md").read_text(), re.M)

    assert {int(number) for row in rows for number in row.split(",")} == CASES


def names_of_inside(tree: ast.Module) -> set[str]:
    """Return the names that a module imports from inside of the package."""
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    inside = [i for i in imports if (i.module or "").startswith("hipq") and i.module not in PUBLIC]
    return {alias.asname or alias.name for each in inside for alias in each.names}


def test_cases_are_tested_by_the_public_api_alone() -> None:
    found = []
    for path in MODULES:
        tree = ast.parse(path.read_text())
        inside = names_of_inside(tree)
        for case in tree.body:
            if isinstance(case, ast.FunctionDef) and case.name.startswith("test_case_"):
                names = {node.id for node in ast.walk(case) if isinstance(node, ast.Name)}
                found += [(case.name, name) for name in sorted(names & inside)]

    assert found == []
