"""The public names of a package, which are loaded on first use (PEP 562)."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pkgutil import get_data
from typing import Any


def loaded_on_first_use(package: str) -> tuple[Callable[[str], Any], list[str]]:
    """Return the `__getattr__` of a package, and the names that it loads.

    The imports in the package's `__init__.pyi` list the names and their modules. Type checkers read
    the same list.
    """
    text = get_data(package, "__init__.pyi")
    assert text is not None  # noqa: S101 - the loader of every package can read its files
    modules = {
        imported.name: statement.module
        for statement in ast.parse(text).body
        if isinstance(statement, ast.ImportFrom) and statement.module
        for imported in statement.names
    }

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(modules[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return load, sorted(modules)
