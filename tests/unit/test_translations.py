"""The translations: complete, up to date with the code, and compiled."""

from __future__ import annotations

import ast
import gettext
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.db.models import Field, Model
from django.utils.functional import Promise

pytestmark = pytest.mark.embedded  # no database is touched

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "hipq_django"
LANGUAGES = ("de", "fr")
OPTIONS = (
    *(f"--locale={language}" for language in LANGUAGES),
    "--add-location=file",
    "--no-obsolete",
)
TRANSLATING = ("_", "gettext", "gettext_lazy", "ngettext", "pgettext", "pgettext_lazy")
HEADER = re.compile(r'^msgid ""\nmsgstr ""\n(".*"\n)+', re.M)

needs_gettext = pytest.mark.skipif(
    shutil.which("xgettext") is None or shutil.which("msgfmt") is None,
    reason="needs Debian's package gettext",
)


def catalog(package: Path, language: str, ending: str = "po") -> Path:
    return package / "locale" / language / "LC_MESSAGES" / f"django.{ending}"


def output_of(*command: str | Path, cwd: Path = ROOT) -> str:
    environment = os.environ | {"LC_ALL": "C", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=cwd, env=environment, check=True, capture_output=True, text=True
    )
    return done.stdout + done.stderr


def entries(package: Path, language: str) -> str:
    """Return what a catalog says, without where it says it."""
    tidy = ("msgcat", "--no-location", "--no-wrap", "--sort-output", "--to-code=UTF-8")
    return HEADER.sub("", output_of(*tidy, catalog(package, language)))


@pytest.fixture(scope="module")
def extracted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package in which the messages were extracted anew."""
    package = tmp_path_factory.mktemp("extracted") / "hipq_django"
    shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    django = (sys.executable, "-m", "django")
    output_of(*django, "makemessages", *OPTIONS, "--settings=tests.settings", cwd=package)
    return package


@needs_gettext
@pytest.mark.parametrize("language", LANGUAGES)
def test_the_catalogs_are_up_to_date_with_the_code(extracted: Path, language: str) -> None:
    assert entries(extracted, language) == entries(PACKAGE, language), "run make messages"


@needs_gettext
@pytest.mark.parametrize("language", LANGUAGES)
def test_everything_is_translated_with_its_placeholders(language: str, tmp_path: Path) -> None:
    check = ("msgfmt", "--check", "--statistics", "--output-file", tmp_path / "django.mo")

    said = output_of(*check, catalog(PACKAGE, language))

    assert re.fullmatch(r"\d+ translated messages\.\n", said)


@needs_gettext
@pytest.mark.parametrize("language", LANGUAGES)
def test_the_compiled_catalogs_say_the_same(language: str, tmp_path: Path) -> None:
    fresh = tmp_path / "django.mo"
    output_of("msgfmt", "--output-file", fresh, catalog(PACKAGE, language))

    assert contents(catalog(PACKAGE, language, "mo")) == contents(fresh), "run make messages"


def contents(compiled: Path) -> dict[Any, str]:
    with compiled.open("rb") as file:
        return vars(gettext.GNUTranslations(file))["_catalog"]  # type: ignore[no-any-return]  # the stubs hide it


def test_each_language_has_other_words() -> None:
    german, french = (contents(catalog(PACKAGE, language, "mo")) for language in LANGUAGES)

    assert german["answer"] == "Antwort"
    assert french["answer"] == "réponse"
    assert german.keys() - {""} == french.keys() - {""}


def test_no_text_is_translated_inside_an_f_string() -> None:
    """There the extraction does not find it, so that no catalog has it."""
    hidden = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for path in PACKAGE.rglob("*.py")
        if "gettext" in (code := path.read_text())
        for text in ast.walk(ast.parse(code))
        if isinstance(text, ast.JoinedStr)
        for call in ast.walk(text)
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") in TRANSLATING
    ]

    assert hidden == []


def models() -> list[type[Model]]:
    return [
        model for app in ("hipq", "hipq_flow") for model in apps.get_app_config(app).get_models()
    ]


def test_the_names_in_a_model_can_be_translated() -> None:
    fixed = [
        f"{model.__name__}.{name}"
        for model in models()
        for name, text in names_in(model).items()
        if text and not isinstance(text, Promise)
    ]

    assert fixed == []


def names_in(model: type[Model]) -> dict[str, Any]:
    """Return what people read of a model and its fields."""
    fields: list[Field[Any, Any]] = [
        field for field in model._meta.fields if not field.auto_created
    ]
    texts: dict[str, Any] = {"verbose_name": model._meta.verbose_name}
    texts["verbose_name_plural"] = model._meta.verbose_name_plural
    for field in fields:
        texts[f"{field.name}.verbose_name"] = field.verbose_name
        texts[f"{field.name}.help_text"] = field.help_text
        for value, label in field.choices or ():
            texts[f"{field.name}.{value}"] = label
    return texts
