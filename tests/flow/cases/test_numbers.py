"""Each case of SideJob is a test of its number, and a row of the document about it."""

import re

from tests.conftest import ROOT

CASES = set(range(1, 103))
MODULES = list((ROOT / "tests" / "flow" / "cases").glob("test_*.py"))


def test_each_case_is_a_test_of_its_number() -> None:
    code = [path.read_text() for path in MODULES]
    found = {int(n) for text in code for n in re.findall(r"^def test_case_(\d{3})", text, re.M)}

    assert found == CASES


def test_each_case_is_described() -> None:
    rows = re.findall(r"^\| (\d[\d, ]*) \|", (ROOT / "docs" / "sidejob.md").read_text(), re.M)

    assert {int(number) for row in rows for number in row.split(",")} == CASES
