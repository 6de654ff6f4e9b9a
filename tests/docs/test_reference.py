"""The reference is complete: nothing public is missing, and nothing in it is not there."""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.core.management import load_command_class
from django.core.management.base import BaseCommand
from django.dispatch import Signal

import hipq_django as hipq
from hipq_django import checks, exceptions, flow, signals, testing
from hipq_django.api.enqueueing import ON_CONFLICT
from hipq_django.conf import options, rules, sharding, tables
from hipq_django.database.requirements import SQLITE_OPTIONS
from hipq_django.domain.ordering import Order
from hipq_django.flow import (
    creating,
    explaining,
    settings as flow_settings,
    testing as flow_testing,
    upkeep,
)
from hipq_django.flow.aliases import Aliases
from hipq_django.flow.declaring import OWN_OPTIONS, REFUSED
from hipq_django.flow.state import State
from hipq_django.flow.web.endpoints import shown_path
from hipq_django.flow.web.operations import ENDPOINTS
from hipq_django.flow.web.view import EndpointView
from hipq_django.job_types.declaration import TYPE_OPTIONS
from hipq_django.models import Answer, Batch, Job, JobType, Queue, Schedule, Worker
from hipq_django.monitoring import reasons
from hipq_django.web import callback_view, receiving, webhook_view
from tests.conftest import ROOT
from tests.docs.documents import REFERENCE, codes_of
from tests.docs.option_tables import KEPT, MARKED, TABLES, written
from tests.processes.forked import ForkedProcess


def first_codes(rows: list[list[str]]) -> list[str]:
    """Return all pieces of code in the first cells."""
    return [code for row in rows for code in codes_of(row[0])]


def names(rows: list[list[str]]) -> list[str]:
    """Return the names that the first cells begin with, without their arguments."""
    return [code.partition("(")[0] for code in first_codes(rows)]


def headed(*heads: str) -> list[str]:
    """Return the names in all tables whose first column has one of these heads."""
    return [name for head in heads for name in names(REFERENCE.headed(head))]


def without_twins(found: Iterable[str]) -> set[str]:
    """Return the names without the twins for async code, which the tables leave out."""
    names = set(found)
    return names - {f"{before}{name}" for name in names for before in ("a", "aset_")}


def under(heading: str) -> list[str]:
    """Return the names in the tables under a heading."""
    return names(REFERENCE.rows(heading))


# What there is, by the code


def first_arguments(module: ModuleType, *functions: str) -> set[Any]:
    """Return the constants that calls of the functions begin with."""
    calls = [
        node
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.Call)
    ]
    return {
        call.args[0].value
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id in functions
        if isinstance(call.args[0], ast.Constant)
    }


def subclasses(error: type[Exception]) -> set[type[Exception]]:
    """Return an error and all that are kinds of it in the package."""
    found = {error}.union(*map(subclasses, error.__subclasses__()))
    return {each for each in found if each.__module__.startswith("hipq_django.")}


def errors() -> set[type[Exception]]:
    """Return the errors of the queue."""
    kinds = [kind for kind in vars(exceptions).values() if inspect.isclass(kind)]
    return {kind for kind in kinds if issubclass(kind, exceptions.HipqError)}


def members(kind: type) -> set[str]:
    """Return the public functions and properties of a class, and of bases that stand beside it."""
    beside = [base for base in kind.__bases__ if base.__module__ == kind.__module__]
    [body] = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(body, ast.ClassDef)
    found = {n.name for n in body.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}
    twins = [n.targets[0] for n in body.body if isinstance(n, ast.Assign)]
    found |= {n.id for n in twins if isinstance(n, ast.Name) and callable(getattr(kind, n.id))}
    found |= {name for base in beside for name in members(base)}
    return {name for name in found if not name.startswith("_")}


def permissions() -> set[str]:
    """Return the permissions that pages and actions of the admin need."""
    seen, edited = (Answer, Batch, Job, JobType, Queue, Schedule, Worker), (Job, JobType, Queue)
    of_verbs = {f"hipq.{verb}" for model in seen for verb, _ in model._meta.permissions}
    to_view = {f"hipq.view_{model._meta.model_name}" for model in seen}
    to_change = {f"hipq.change_{model._meta.model_name}" for model in edited}
    return (
        of_verbs | to_view | to_change | {f"hipq.{v}_schedule" for v in ("add", "change", "delete")}
    )


def statuses(view: ModuleType) -> set[str]:
    """Return the statuses that a view answers."""
    return set(re.findall(r"\b[245]\d\d\b", inspect.getsource(view) + inspect.getsource(receiving)))


def parts_of_webhooks() -> set[str]:
    """Return what a subclass of the view may have."""
    parts = set(vars(webhook_view.WebhookView)) - set(vars(receiving.ReceivingView))
    return {part for part in parts if not part.startswith("_")}


CHECKED = "".join(map(inspect.getsource, (checks, rules, sharding, tables, options, flow_settings)))
CHECKS = set(re.findall(r'"(hipq\.[EWI]\d{3})"', CHECKED))
PACKAGE = {path: path.read_text() for path in Path(inspect.getfile(hipq)).parent.rglob("*.py")}
COMMANDS = {path.stem: path for path in PACKAGE if path.match("commands/hipq_*.py")}
PARTS_OF_FLOWS = {
    "In a run": flow.Component,
    "Nodes": flow.Node,
    "Ports": flow.Port,
    "State": State,
}
INTERNAL = {"awaited", "learn", "redactor", "row", "using"}
ON_OBJECTS = {"node", "direction", "name", "last"}
"""What the class of ports has not, but each of its objects."""
TABLES_OF_NAMES: dict[str, tuple[list[str], Iterable[str]]] = {
    "public names": (headed("Name", "Error"), dir(hipq)),
    "reasons": (under("Reasons"), first_arguments(reasons, "Reason", "_reason")),
    "test kit": (headed("Function"), testing.__all__),
    "parts of a webhook": (headed("Part"), parts_of_webhooks()),
    "errors": (headed("Error"), {error.__name__ for error in errors()}),
    "fields of a job": (headed("Field of a job"), [f.name for f in Job._meta.concrete_fields]),
    "signals": (headed("Signal"), [n for n, v in vars(signals).items() if isinstance(v, Signal)]),
    "permissions": (headed("Permission"), permissions()),
    "checks": (under("System checks"), CHECKS),
    "names of flows": (headed("Name of flows", "Error of flows"), dir(flow)),
    "reasons of nodes": (
        under("Reasons of nodes"),
        first_arguments(explaining, "Reason", "_reason"),
    ),
    "errors of flows": (
        headed("Error of flows"),
        {error.__name__ for error in subclasses(flow.FlowError)},
    ),
    "test kit of flows": (headed("Function of flows"), flow_testing.__all__),
    **{
        heading: (
            under(heading),
            members(kind) - INTERNAL | (ON_OBJECTS if kind is flow.Port else set()),
        )
        for heading, kind in PARTS_OF_FLOWS.items()
    },
}


@pytest.mark.parametrize("table", TABLES_OF_NAMES)
def test_a_table_has_each_name_that_there_is_once(table: str) -> None:
    named, real = TABLES_OF_NAMES[table]

    assert sorted(named) == sorted(without_twins(real))


def test_what_a_cell_lists_is_complete() -> None:
    [order] = [row[-1] for row in REFERENCE.rows("Of a queue") if "ORDER" in row[0]]
    [conflicts] = [row[2] for row in REFERENCE.rows("Options of a job") if "conflict" in row[0]]
    [of_jobs] = [row[2] for row in REFERENCE.rows("Options of flow.start") if row[0] == "`job`"]
    [aliases] = [row[1] for row in REFERENCE.rows("Nodes") if row[0] == "`aliases`"]

    assert [code.strip('"') for code in codes_of(order)] == Order.values
    assert {code.strip('"') for code in codes_of(conflicts)} >= set(ON_CONFLICT)
    assert set(creating.OF_JOBS) == set(codes_of(of_jobs))
    verbs = {code.partition("(")[0].removeprefix("aliases.") for code in codes_of(aliases)}
    assert without_twins(members(Aliases)) <= verbs


def test_every_status_is_there() -> None:
    said = re.findall(r"\b([45]\d\d): ", str(EndpointView.__doc__))
    for heading, real in (
        ("Callbacks", statuses(callback_view)),
        ("Webhooks", statuses(webhook_view)),
        ("HTTP API of flows", {"200", *said}),
    ):
        first = [row[0] for row in REFERENCE.rows(heading)]
        told = {status for cell in first for status in cell.split(", ") if status.isdecimal()}
        assert told == real, heading


def test_every_finding_of_flows_is_there_with_its_level() -> None:
    listed = {(row[1], codes_of(row[0])[0]) for row in REFERENCE.rows("Findings of flows")}

    assert listed == {
        (level, code) for level in ("problem", "warning") for code in first_arguments(upkeep, level)
    }


def test_every_request_of_flows_is_there_with_its_permission_and_fields() -> None:
    tables = REFERENCE.tables("HTTP API of flows")
    requests = [row for table in tables if table.head[0] == "Request" for row in table.rows]
    listed = [(*codes_of(row[0].replace("\\|", "|")), *codes_of(row[1])) for row in requests]

    assert listed == [
        (f"{each.method} {shown_path(each.route)}", each.permission) for each in ENDPOINTS
    ]
    for row, each in zip(requests, ENDPOINTS, strict=True):
        required = {name for name, field in each.fields.items() if field.is_required}
        assert set(each.fields) <= set(codes_of(row[2]))
        assert set(re.findall(r"\*\*`(\w+)`\*\*", row[2])) == required


COMPOSED = {"progress_refused", "extend_refused"}
"""Events whose names are made of others."""


def test_every_warning_and_error_of_the_log_is_there() -> None:
    sources = "".join(PACKAGE.values())
    logged = set(re.findall(r'\bevents\.(?:warning|error|critical)\(\s*"(\w+)"', sources))
    told = set(under("Warnings and errors"))

    assert len(logged) > 40
    assert logged - told == set()
    assert {name for name in told if f'"{name}"' not in sources} == COMPOSED


# Defaults


def test_every_option_is_there_with_its_default_and_its_values() -> None:
    said = "run python -m tests.docs.option_tables, and say what a new option means"

    assert written(REFERENCE.text) == REFERENCE.text, said
    assert {match[1] for match in MARKED.finditer(REFERENCE.text)} == set(TABLES)
    assert f"| {KEPT} |" not in REFERENCE.text, said


def defaults_under(heading: str) -> dict[str, str]:
    """Return the second cells under a heading, without their quotes, by the names of the first."""
    rows = REFERENCE.rows(heading)
    return {name: row[1].strip("`") for row in rows for name in codes_of(row[0])}


def test_the_defaults_of_a_start_are_those_of_the_code() -> None:
    real = inspect.signature(creating.start).parameters
    of_start = {name: each.default for name, each in real.items() if name != "component"}
    starts = defaults_under("Options of flow.start")
    assert {n: ast.literal_eval(text) for n, text in starts.items()} == of_start | {
        "on_conflict": "raise"
    }


def test_every_option_of_a_component_is_there_with_its_default() -> None:
    real = inspect.signature(flow.component).parameters
    own = {name: real[name].default for name in ("queue", "instance", "outs")} | OWN_OPTIONS
    *rows, others = REFERENCE.rows("Options of a component")

    assert {codes_of(row[0])[0]: ast.literal_eval(codes_of(row[1])[0]) for row in rows} == own
    assert codes_of(others[0]) == [name for name in TYPE_OPTIONS if name not in REFUSED]
    said = REFERENCE.section("Options of a component").rpartition("|")[2]
    assert set(REFUSED) <= set(codes_of(said))


FOR_TESTS_ONLY = {"draw"}  # of Exponential: where chance comes from
TAKES_WHAT_DJANGO_GIVES = (flow.Node, "delete()")


def signatures() -> Iterator[tuple[Any, str]]:
    """Yield the module or class of each signature that is written out, and the signature."""
    tables: list[tuple[Any, list[list[str]]]] = [
        (hipq, REFERENCE.headed("Name")),
        (flow, REFERENCE.headed("Name of flows")),
        (flow_testing, REFERENCE.headed("Function of flows")),
        *((kind, REFERENCE.rows(heading)) for heading, kind in PARTS_OF_FLOWS.items()),
    ]
    for owner, rows in tables:
        for code in first_codes(rows):
            if "(" in code and "…" not in code and (owner, code) != TAKES_WHAT_DJANGO_GIVES:
                yield owner, code


def test_each_signature_is_that_of_the_code() -> None:
    for owner, code in signatures():
        function = getattr(owner, code.partition("(")[0])
        real = [
            (name, each)
            for name, each in inspect.signature(function).parameters.items()
            if name != "self" and name not in FOR_TESTS_ONLY and each.kind is not each.VAR_KEYWORD
        ]
        given = parameters(code)
        if "**" in code and owner is hipq:
            real = real[: len(given)]
        assert list(given) == [name for name, _ in real], code
        for name, each in real:
            assert given[name] == each.default or repr(each.default) == "<factory>", code


def parameters(signature: str) -> dict[str, Any]:
    """Return the parameters of a signature and their defaults; `**options` is left out."""
    [function] = ast.parse(f"def {signature}: ...").body
    assert isinstance(function, ast.FunctionDef)
    given = function.args.args
    defaults: list[Any] = [inspect.Parameter.empty] * (len(given) - len(function.args.defaults))
    defaults += [
        eval(ast.unparse(each), {"NOTHING": flow.NOTHING}) for each in function.args.defaults
    ]
    if function.args.vararg:
        given, defaults = [*given, function.args.vararg], [*defaults, inspect.Parameter.empty]
    return {argument.arg: default for argument, default in zip(given, defaults, strict=True)}


# Commands

OF_ALL_COMMANDS = {"--instance", "--json"}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_a_command_is_there_with_its_default(command: str) -> None:
    actions = own_options(command)
    rows = [r for t in REFERENCE.tables(command) if t.head[0] == "Option" for r in t.rows]

    strings = [string for action in actions.values() for string in action.option_strings]
    assert "--instance" in strings
    assert first_codes(rows) == [each for each in strings if each not in OF_ALL_COMMANDS]
    for option, default, _ in rows:
        action = actions[codes_of(option)[0]]
        if codes_of(default) and action.dest != "reload":
            assert codes_of(default) == [str(action.default)], option


def own_options(command: str) -> dict[str, argparse.Action]:
    app = "hipq_django.flow" if "flow" in COMMANDS[command].parts else "hipq_django"
    common = {action.dest for action in BaseCommand().create_parser("manage.py", "")._actions}
    parser = load_command_class(app, command).create_parser("manage.py", command)
    own = [action for action in parser._actions if action.dest not in common]
    return {action.option_strings[0]: action for action in own if action.option_strings}


@pytest.mark.processes
def test_a_worker_exits_with_the_code_that_is_written(
    process_environment: dict[str, str], tmp_path: Path
) -> None:
    codes = [row[0] for row in REFERENCE.headed("Exit code")]
    log = tmp_path / "log"

    for code, arguments in enumerate((["--until-idle", "-v0"], ["no_such_queue"], ["--no-such"])):
        worker = ForkedProcess(["hipq_worker", *arguments], process_environment, log)
        assert (worker.wait(60), str(code) in codes) == (code, True), log.read_text()
        assert code > 1 or log.read_text().count("\n") == code  # one line says what is wrong


# Examples


def test_there_is_one_recipe_for_sqlite() -> None:
    files = "README.md", "docs/reference/settings.md", "docs/tutorial.md"
    for path in (*files, "example_project/settings.py"):
        text = (ROOT / path).read_text()
        recipe = re.search(r'DATABASES\["default"\]\["OPTIONS"\] = (\{.*?\n *\})', text, re.DOTALL)
        assert recipe, path
        assert ast.literal_eval(recipe[1]) == SQLITE_OPTIONS, path
