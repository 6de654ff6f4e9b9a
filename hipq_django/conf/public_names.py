"""The public names of a package, which are loaded on first use (PEP 562)."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pkgutil import get_data
from typing import Any


def loaded_on_first_use(
    module: str, stub: str = "__init__.pyi"
) -> tuple[Callable[[str], Any], list[str]]:
    """Return the `__getattr__` of a package or another module, and the names that it loads.

    The imports in its stub list the names and their modules. Type checkers read the same list.
    """
    package = module if stub == "__init__.pyi" else module.rpartition(".")[0]
    text = get_data(package, stub)
    assert text is not None  # noqa: S101 - the loader of every package can read its files
    modules = {
        imported.name: statement.module
        for statement in ast.parse(text).body
        if isinstance(statement, ast.ImportFrom) and statement.module
        for imported in statement.names
    }

    def load(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = getattr(import_module(modules[name]), name)
        setattr(sys.modules[module], name, value)
        return value

    return load, sorted(modules)
