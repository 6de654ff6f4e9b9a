"""What the project promises of itself: its files, its public names and what it needs."""

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from zipfile import ZipFile

import pytest

import hipq_django
from hipq_django import flow
from tests.conftest import ROOT

pytestmark = pytest.mark.embedded  # no database is touched

PACKAGE = ROOT / "hipq_django"
TOP_LEVEL = (
    *(".ci/run", ".gitignore", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile"),
    *("README.md", "SECURITY.md", "docs", "example_project", "manage.py", "pyproject.toml"),
)
MODELS = {"Answer", "Attempt", "Job", "JobType", "Queue", "Worker"}


def test_the_top_level_holds_what_is_expected_there() -> None:
    absent = [name for name in TOP_LEVEL if not (ROOT / name).exists()]

    assert absent == []


@pytest.mark.parametrize("package", [hipq_django, flow])
def test_each_public_name_can_be_imported_from_the_package(package: ModuleType) -> None:
    assert [name for name in dir(package) if not hasattr(package, name)] == []


def test_each_model_can_be_imported_from_the_models_package() -> None:
    from hipq_django import models

    assert {getattr(models, name)._meta.app_label for name in MODELS} == {"hipq"}


def test_no_module_hides_a_public_name() -> None:
    modules = {path.stem for path in PACKAGE.iterdir() if not path.name.startswith("_")}

    assert modules.isdisjoint(dir(hipq_django))


def test_the_package_can_be_imported_before_django_is_set_up() -> None:
    python("import hipq_django")


def test_importing_the_package_loads_no_models() -> None:
    loaded = python("import sys, hipq_django; print(*sys.modules)").split()

    assert "hipq_django" in loaded
    assert {"django.db.models", "hipq_django.models"}.isdisjoint(loaded)


OF_EXTRAS = {
    "arguments.py": {"pydantic", "pydantic_core", "typing_extensions"},
    "flow/library/filter_process.py": {"jq"},
    "sources/amqp.py": {"kombu"},
    "sources/kafka.py": {"confluent_kafka"},
    "tasks_backend/names.py": {"django_tasks"},
}
"""Modules that need an extra, each imported only by who asks for what it does."""


def test_the_package_needs_only_django_and_cronsim() -> None:
    # Django needs asgiref itself, and its documentation tells projects to import from it.
    allowed = {"hipq_django", "django", "asgiref", "cronsim", *sys.stdlib_module_names}

    foreign = {
        f"{path.relative_to(ROOT)} imports {name}"
        for path in PACKAGE.rglob("*.py")
        for name in imported_names(path)
        if name.partition(".")[0]
        not in allowed | OF_EXTRAS.get(path.relative_to(PACKAGE).as_posix(), set())
    }

    assert foreign == set()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target=wheel", "--directory"]
    subprocess.run([*command, directory], cwd=ROOT, check=True, capture_output=True)
    return next(directory.glob("*.whl"))


def test_the_wheel_says_that_it_is_typed(wheel: Path) -> None:
    assert "hipq_django/py.typed" in ZipFile(wheel).namelist()


def test_the_wheel_holds_every_file_of_the_package_and_no_other(wheel: Path) -> None:
    shipped = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}

    assert shipped == {
        str(path.relative_to(ROOT))
        for path in PACKAGE.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    } | {"pytest_hipq_django.py"}


@pytest.mark.parametrize("address", ["https://code.example/hipq/", ""])
def test_no_link_of_the_page_on_an_index_is_relative(address: str) -> None:
    command = [sys.executable, "-m", "hatchling", "metadata"]
    environment = os.environ | {"HIPQ_REPOSITORY_URL": address}
    printed = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
    metadata = json.loads(printed.stdout)
    links = re.findall(r"\]\(([^)]+)\)", metadata["readme"]["text"])

    assert {link for link in links if not link.startswith(f"{address}blob/main/")} == set()
    assert bool(links) is bool(address) is bool(metadata.get("urls"))


def python(code: str) -> str:
    """Run `code` in an interpreter without Django settings and return what it prints."""
    command = [sys.executable, "-c", code]
    result = subprocess.run(
        command, cwd=ROOT, env={}, check=True, stdout=subprocess.PIPE, text=True
    )
    return result.stdout


def imported_names(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield node.module


DIRECTIVE = re.compile(r"# (?:type: ignore(?:\[[^\]]*\])?|noqa(?:: [A-Z]+\d+(?:, ?[A-Z]+\d+)*)?)")


def test_whatever_a_linter_is_told_to_overlook_has_its_reason_on_the_line() -> None:
    folders = ("hipq_django", "tests", "benchmarks", "chaos", "example_project")
    bare = [
        f"{path.relative_to(ROOT)}:{number}"
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if (found := DIRECTIVE.split(line))[1:] and not re.search("[a-z]", found[-1])
    ]

    assert not bare, "say why, as in `# noqa: S311 - no secret`"
